/** One line that says in words what is lit: for everybody, and for screen readers when it is pinned. */
import type { Segment } from "../api/contract.ts";
import { FLAG } from "../api/contract.ts";
import { useLinking } from "../link/linking.ts";
import type { TokenStore } from "../link/token-store.ts";
import { visibleToken } from "../logic/columns.ts";
import { count } from "../logic/format.ts";
import { spacedHex } from "../logic/merges.ts";
import { within } from "../logic/spans.ts";
import { Role } from "../parts/badges.tsx";
import { locale, t } from "../text/index.ts";

export function LinkLine({ total, tokens, segments }: { total: number; tokens: TokenStore | null; segments: Segment[] }) {
  const linking = useLinking();
  const link = linking.lit.value;
  const isPinned = link !== null && link === linking.pinned.value;
  const language = locale.value;
  const number = (value: number) => count(value, language);
  const segment = link ? within(segments, (item) => item.tokens, link.tokens)[0] : undefined;
  return (
    <div class={`link-line ${isPinned ? "is-pinned" : ""}`} data-testid="link-line">
      <p role="status" aria-live={isPinned ? "polite" : "off"}>
        {link === null ? (
          <span class="hint">{t("link.none")}</span>
        ) : (
          <>
            <b class="how">{isPinned ? t("link.pinned") : t("link.hovered")}</b>
            <span>
              {link.tokens[1] - link.tokens[0] === 1
                ? t("link.one", { start: number(link.tokens[0]), total: number(total) })
                : t("link.span", { start: number(link.tokens[0]), end: number(link.tokens[1] - 1), total: number(total) })}
            </span>
            {segment && (
              <>
                <Role role={segment.role} />
                <span>{t(`origin.${segment.origin}`)}</span>
              </>
            )}
            {tokens && link.tokens[1] - link.tokens[0] === 1 && <OneToken tokens={tokens} token={link.tokens[0]} />}
          </>
        )}
      </p>
      {linking.pinned.value && (
        <button type="button" onClick={() => linking.unpin()}>
          {t("panel.unpin")} <kbd>Esc</kbd>
        </button>
      )}
      <label class="follow" title={t("panel.followHint")}>
        <input type="checkbox" checked={linking.follows.value} onChange={(event) => (linking.follows.value = event.currentTarget.checked)} />
        {t("panel.follow")}
      </label>
    </div>
  );
}

const FLAGS = ["special", "partial", "reused", "output", "forced", "accepted", "replayed"] as const;

function OneToken({ tokens, token }: { tokens: TokenStore; token: number }) {
  tokens.version.value;
  const page = tokens.pageOf(token);
  if (!page) return null;
  const at = token - page.start;
  const text = page.text[at];
  return (
    <span class="one-token">
      <code>{text === null ? t("tokens.none") : visibleToken(text)}</code>
      <span>
        {t("tokens.id")} {page.ids[at]}
      </span>
      <span>
        {t("tokens.bytes")} <code>{spacedHex(page.bytes[at])}</code>
      </span>
      {FLAGS.filter((name) => page.flags[at] & FLAG[name]).map((name) => (
        <em key={name}>{t(`tokens.${name}`)}</em>
      ))}
    </span>
  );
}
