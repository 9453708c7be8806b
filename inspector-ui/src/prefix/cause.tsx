/** The named cause of a break, short. */
import { named } from "../text/index.ts";

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
