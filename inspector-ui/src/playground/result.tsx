/** A rendered conversation: template and tokens, linked, and how much of it is reusable now. */
import { useLayoutEffect, useMemo } from "preact/hooks";
import type { Family, Rendered } from "../api/contract.ts";
import { Linking, LinkingContext } from "../link/linking.ts";
import { TokenStore } from "../link/token-store.ts";
import { count } from "../logic/format.ts";
import { TemplatePanel } from "../panels/template-panel.tsx";
import { TokensPanel } from "../panels/tokens-panel.tsx";
import { LinkLine } from "../panels/link-line.tsx";
import { locale, named, t } from "../text/index.ts";
import { served } from "../text/served.ts";

export function Result({ rendered, family }: { rendered: Rendered; family: Family }) {
  const linking = useMemo(() => new Linking(), []);
  useLayoutEffect(() => linking.start(), []);
  const tokens = useMemo(() => {
    const store = new TokenStore(Math.min(rendered.num_tokens, rendered.tokens.end), rendered.segments, rendered.text.length, null);
    store.put(rendered.tokens);
    return store;
  }, [rendered]);
  const language = locale.value;
  const first = rendered.segments.find(({ kind }) => kind === "marker");
  const marker = first && rendered.text.slice(...first.utf16);
  return (
    <LinkingContext.Provider value={linking}>
      <Reusable rendered={rendered} family={family} />
      <LinkLine total={rendered.num_tokens} tokens={tokens} segments={rendered.segments} />
      {rendered.notes.map((note) => (
        <p key={note} class="note">
          {served(note)}
        </p>
      ))}
      {rendered.typed_markers.length === 0 && marker && <p class="note">{t("play.typedHint", { text: marker })}</p>}
      {rendered.typed_markers.length > 0 && (
        <ul class="typed" data-testid="typed-markers">
          {rendered.typed_markers.map((marker) => (
            <li key={marker.utf16[0]}>
              {t("play.typed", { text: marker.text, count: count(marker.tokens[1] - marker.tokens[0], language) })}
            </li>
          ))}
        </ul>
      )}
      <section class="panel segments" aria-labelledby="result-template">
        <header>
          <h3 id="result-template">{t("panel.segments")}</h3>
        </header>
        <TemplatePanel segments={rendered.segments} text={rendered.text} tokens={tokens} />
      </section>
      <section class="panel tokens" aria-labelledby="result-tokens">
        <header>
          <h3 id="result-tokens">{t("panel.tokens")}</h3>
        </header>
        <TokensPanel tokens={tokens} segments={rendered.segments} />
      </section>
    </LinkingContext.Provider>
  );
}

function Reusable({ rendered: { num_tokens: total, reusable }, family }: { rendered: Rendered; family: Family }) {
  const language = locale.value;
  const tokens = reusable?.tokens ?? 0;
  const words =
    reusable === null
      ? t("play.notServed")
      : tokens
        ? t("play.reusable", { count: count(tokens, language), tier: named("cache.tier.", reusable.tier ?? "resident") })
        : t("play.notReusable");
  return (
    <div class="reusable" data-testid="reusable" data-tokens={tokens} data-total={total} data-family={family.name}>
      <p role="status">
        <b>{t("play.tokens", { count: count(total, language) })}</b> {words}
      </p>
      <div class="context-bar" aria-hidden="true">
        <div class={`region ${reusable?.tier === "ssd" ? "hit_ssd" : "hit_resident"}`} style={{ flexGrow: tokens }} />
        <div class="region recomputed" style={{ flexGrow: Math.max(0, total - tokens) }} />
      </div>
    </div>
  );
}
