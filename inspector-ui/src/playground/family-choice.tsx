/** Chooses a template family, and how its thinking is controlled. */
import type { Family, Reasoning } from "../api/contract.ts";
import { count } from "../logic/format.ts";
import { locale, t } from "../text/index.ts";
import { served } from "../text/served.ts";
import { controlName, familyName } from "./playground-state.ts";

export const AS_TEMPLATE: Reasoning = { enabled: null, effort: null };

export function chosenFamily(families: readonly Family[]): Family {
  return families.find(({ name }) => name === familyName.value) ?? families[0];
}

export function chosenReasoning(family: Family): Reasoning {
  return family.controls.find(({ name }) => name === controlName.value)?.reasoning ?? AS_TEMPLATE;
}

export function FamilyChoice({ families }: { families: readonly Family[] }) {
  const family = chosenFamily(families);
  const { tokenizer } = family;
  return (
    <div class="family-choice">
      <label>
        {t("play.family")}
        <select value={family.name} onChange={(event) => (familyName.value = event.currentTarget.value)}>
          {families.map(({ name, title }) => (
            <option key={name} value={name}>
              {served(title)}
            </option>
          ))}
        </select>
      </label>
      <span class={`tokenizer ${tokenizer.is_real ? "" : "stand-in"}`}>
        {tokenizer.is_real
          ? t("play.realTokenizer", { name: tokenizer.vocabulary_size === null ? tokenizer.name : `${tokenizer.name} (${count(tokenizer.vocabulary_size, locale.value)})` })
          : t("play.otherTokenizer")}
      </span>
    </div>
  );
}

export function ControlChoice({ family, value, label, onChange }: { family: Family; value: string | null; label: string; onChange: (name: string | null) => void }) {
  const groups = ["soft", "hard"] as const;
  return (
    <label>
      {label}
      <select value={value ?? ""} onChange={(event) => onChange(event.currentTarget.value || null)}>
        <option value="">{t("play.thinkingNone")}</option>
        {groups.map((kind) => {
          const controls = family.controls.filter((control) => control.kind === kind);
          return (
            controls.length > 0 && (
              <optgroup key={kind} label={t(`play.${kind}`)}>
                {controls.map(({ name, title }) => (
                  <option key={name} value={name}>
                    {served(title)}
                  </option>
                ))}
              </optgroup>
            )
          );
        })}
      </select>
    </label>
  );
}
