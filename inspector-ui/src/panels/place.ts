/** Finds where a client's text stands on the text axis, so that single tokens of it can be lit where it is shown. */
import type { Segment, Span } from "../api/contract.ts";
import { within } from "../logic/spans.ts";

/** UTF-16 offset on the text axis of `part` (an unchanged stretch of what was rendered within `tokens`); null: it was written in another way. */
export function placeOf(part: string, tokens: Span | null, segments: readonly Segment[], text: string): number | null {
  if (tokens === null || part.length === 0) return null;
  const around = within(segments, (segment) => segment.tokens, tokens);
  if (!around.length) return null;
  const [start, end] = [around[0].utf16[0], around[around.length - 1].utf16[1]];
  if (text.startsWith(part, start)) return start;
  const found = text.slice(start, end).indexOf(part);
  return found < 0 ? null : start + found;
}
