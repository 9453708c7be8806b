/** Two settings of thinking, rendered side by side: soft ones change words, hard ones open or close the thinking. */
import { useLayoutEffect, useMemo } from "preact/hooks";
import { useSignal } from "@preact/signals";
import type { Family, Rendered } from "../api/contract.ts";
import { Linking, LinkingContext } from "../link/linking.ts";
import { TokenStore } from "../link/token-store.ts";
import { count } from "../logic/format.ts";
import { TemplatePanel } from "../panels/template-panel.tsx";
import { locale, t } from "../text/index.ts";
import { AS_TEMPLATE, chosenFamily, ControlChoice, FamilyChoice } from "./family-choice.tsx";
import { draft, familyName } from "./playground-state.ts";
import { useRendering } from "./rendering.ts";

export function Compare({ families }: { families: readonly Family[] }) {
  const family = chosenFamily(families);
  const chosen = useSignal<[string | null, string | null]>([null, null]);
  useLayoutEffect(() => {
    // a family that can be controlled in both ways says most
    if (familyName.value === null) familyName.value = families.find(({ name, control }) => control === "both" && name !== "loaded")?.name ?? null;
  }, []);
  useLayoutEffect(() => {
    const names = family.controls.map(({ name }) => name);
    chosen.value = [names[0] ?? null, names[names.length - 1] ?? null];
  }, [family.name]);
  const reasoningOf = (name: string | null) => family.controls.find((control) => control.name === name)?.reasoning ?? AS_TEMPLATE;
  const one = useRendering(draft.value!, family.name, reasoningOf(chosen.value[0]));
  const other = useRendering(draft.value!, family.name, reasoningOf(chosen.value[1]));
  const error = one.error ?? other.error;
  return (
    <div class="compare">
      <p class="note">{t("play.compareHint")}</p>
      <div class="controls">
        <FamilyChoice families={families} />
        {!family.controls.length && <span class="note">{t("play.noControl")}</span>}
      </div>
      {error && (
        <p class="problem" role="alert">
          {error.message}
        </p>
      )}
      {one.rendered && other.rendered && <Parting one={one.rendered} other={other.rendered} />}
      <div class="sides">
        {[one, other].map((side, index) => (
          <div key={index} class={`result ${side.isStale ? "stale" : ""}`}>
            <p class="working note">{t("play.working")}</p>
            {family.controls.length > 0 && (
              <ControlChoice
                family={family}
                label={t("play.thinking")}
                value={chosen.value[index]}
                onChange={(name) => (chosen.value = index === 0 ? [name, chosen.value[1]] : [chosen.value[0], name])}
              />
            )}
            {side.rendered && <Side rendered={side.rendered} />}
          </div>
        ))}
      </div>
    </div>
  );
}

function Parting({ one, other }: { one: Rendered; other: Rendered }) {
  const language = locale.value;
  const [left, right] = [one.tokens.ids, other.tokens.ids];
  let shared = 0;
  while (shared < left.length && shared < right.length && left[shared] === right[shared]) shared += 1;
  const number = (value: number) => count(value, language);
  const isSame = shared === left.length && shared === right.length;
  return (
    <p class="parting" role="status" data-testid="parting" data-shared={shared}>
      {isSame
        ? t("play.same", { count: number(shared) })
        : `${t("play.fork", { token: number(shared), one: number(one.num_tokens - shared), other: number(other.num_tokens - shared) })} ${t("play.forkUncached", { count: number(shared) })}`}
    </p>
  );
}

function Side({ rendered }: { rendered: Rendered }) {
  const linking = useMemo(() => new Linking(), []);
  useLayoutEffect(() => linking.start(), []);
  const tokens = useMemo(() => {
    const store = new TokenStore(rendered.tokens.end, rendered.segments, rendered.text.length, null);
    store.put(rendered.tokens);
    return store;
  }, [rendered]);
  return (
    <LinkingContext.Provider value={linking}>
      <section class="panel segments" aria-label={t("panel.segments")}>
        <header>
          <h3>{t("play.tokens", { count: count(rendered.num_tokens, locale.value) })}</h3>
        </header>
        <TemplatePanel segments={rendered.segments} text={rendered.text} tokens={tokens} />
      </section>
    </LinkingContext.Provider>
  );
}
