/** The named cause of a break: a sign, and in sentences. */
import type { Cause, Sentence } from "../api/contract.ts";
import { visible } from "../logic/columns.ts";
import { count } from "../logic/format.ts";
import { en, type Key } from "../text/en.ts";
import { locale, named, t } from "../text/index.ts";

/** Causes that are nobody's fault: nothing to warn of. */
const CALM = new Set(["first_request", "other_conversation"]);

export function isCalm(cause: string): boolean {
  return CALM.has(cause);
}

export function CauseBadge({ cause }: { cause: string | null }) {
  if (cause === null || isCalm(cause)) return null;
  const text = named("cause.", cause);
  return (
    <span class="cause-badge" title={text}>
      <span aria-hidden="true">≠</span>
      <span class="hidden">{text}</span>
    </span>
  );
}

/** What the server says of a cause, in the page's language; in its own English where the page does not know the sentence. */
export function CauseDetail({ cause }: { cause: Cause }) {
  const isKnown = cause.said.every(({ name }) => `said.${name}` in en);
  if (!isKnown) return <p lang="en">{cause.detail}</p>;
  return <p class="said">{cause.said.map(sentence).join(" ")}</p>;
}

function sentence({ name, values }: Sentence): string {
  const filled = Object.entries(values).map(([key, value]) => [key, key === "role" ? named("role.", String(value)) : spelled(value)]);
  return t(`said.${name}` as Key, Object.fromEntries(filled));
}

function spelled(value: string | number | string[]): string {
  if (typeof value === "number") return count(value, locale.value);
  return [value].flat().map((text) => `“${visible(text)}”`).join(locale.value === "en" ? ", " : "、");
}
