/** Lays out one running text, made of pieces (segments), in rows. A row may hold the end of one piece and the beginning of the next. */
import type { Span } from "../api/contract.ts";
import { rowEnd } from "./columns.ts";
import { lastAtOrBefore } from "./spans.ts";

/** Rows by where they begin; row `i` ends where row `i + 1` begins. */
export interface Flow {
  starts: Uint32Array;
  count: number;
  length: number;
}

export function layOut(text: string, columns: number): Flow {
  let starts = new Uint32Array(Math.max(16, Math.ceil(text.length / Math.max(1, columns >> 1)) + 16));
  let count = 0;
  for (let at = 0; at < text.length; ) {
    if (count === starts.length) {
      const longer = new Uint32Array(starts.length * 2);
      longer.set(starts);
      starts = longer;
    }
    starts[count++] = at;
    at = rowEnd(text, at, text.length, columns);
  }
  return { starts, count, length: text.length };
}

export function rowSpan(flow: Flow, row: number): Span {
  return [flow.starts[row], row + 1 < flow.count ? flow.starts[row + 1] : flow.length];
}

export function rowAt(flow: Flow, position: number): number {
  return Math.max(0, lastAtOrBefore(flow.count, (row) => flow.starts[row], position));
}
