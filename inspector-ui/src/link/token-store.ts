/** Tokens by the page, fetched when somebody looks at them; and which tokens a stretch of the text axis is made of. */
import { signal } from "@preact/signals";
import type { Segment, Span, TokenColumns } from "../api/contract.ts";
import { lastAtOrBefore, within } from "../logic/spans.ts";

export const PAGE = 1000;
const MOST_PAGES = 80;

/** A stretch of text and the tokens that spell it: one token, or several that share a character. */
export interface Unit {
  utf16: Span;
  tokens: Span;
}

export type LoadPage = (start: number, end: number) => Promise<TokenColumns>;

export class TokenStore {
  /** Grows with each page that arrives: whoever draws tokens reads it. */
  readonly version = signal(0);
  readonly total: number;
  private readonly segments: readonly Segment[];
  private readonly load: LoadPage | null;
  private readonly pages = new Map<number, TokenColumns>();
  private readonly asked = new Set<number>();
  private isAnnounced = false;
  /** Places where both axes are known, ascending. */
  private anchors: [utf16: number, token: number][];

  /** `load` null: there is nothing beyond what `put` gives. */
  constructor(total: number, segments: readonly Segment[], textLength: number, load: LoadPage | null) {
    this.total = total;
    this.segments = segments;
    this.load = load;
    this.anchors = [...segments.map(({ utf16, tokens }): [number, number] => [utf16[0], tokens[0]]), [textLength, total]];
  }

  put(columns: TokenColumns): void {
    for (let start = columns.start; start < columns.end; start += PAGE) {
      const end = Math.min(columns.end, start + PAGE);
      const cut = <T>(values: T[]) => values.slice(start - columns.start, end - columns.start);
      this.keep(Math.floor(start / PAGE), {
        start,
        end,
        total: columns.total,
        ids: cut(columns.ids),
        bytes: cut(columns.bytes),
        text: cut(columns.text),
        flags: cut(columns.flags),
        utf16: cut(columns.utf16),
        segments: cut(columns.segments),
      });
    }
    this.announce();
  }

  /** The page that holds a token, if it is there; else it is fetched. */
  pageOf(token: number): TokenColumns | null {
    const index = Math.floor(token / PAGE);
    const page = this.pages.get(index);
    if (page) return page;
    if (this.load && !this.asked.has(index) && token < this.total) {
      this.asked.add(index);
      this.load(index * PAGE, Math.min(this.total, (index + 1) * PAGE)).then(
        (columns) => this.put(columns),
        () => window.setTimeout(() => this.asked.delete(index), 2000),
      );
    }
    return null;
  }

  /** The units of `[start, end)` on the text axis; where the tokens are not here yet, whole segments. */
  units([start, end]: Span): Unit[] {
    const units: Unit[] = [];
    let at = start;
    while (at < end) {
      const page = this.pageAt(at);
      if (!page) {
        for (const segment of within(this.segments, ({ utf16 }) => utf16, [at, end])) {
          units.push({ utf16: [Math.max(at, segment.utf16[0]), Math.min(end, segment.utf16[1])], tokens: segment.tokens });
        }
        break;
      }
      let index = Math.max(0, lastAtOrBefore(page.utf16.length, (token) => page.utf16[token][0], at));
      while (index > 0 && page.utf16[index - 1][0] === page.utf16[index][0] && page.utf16[index - 1][1] > at) index -= 1;
      for (; index < page.utf16.length && at < end; ) {
        const first = index;
        const stop = page.utf16[index][1];
        do index += 1;
        while (index < page.utf16.length && page.utf16[index][0] < stop); // tokens that share characters
        if (stop <= at) continue;
        units.push({ utf16: [at, Math.min(end, stop)], tokens: [page.start + first, page.start + index] });
        at = Math.min(end, stop);
      }
      if (page.end >= this.total || at < page.utf16[page.utf16.length - 1][1]) break;
    }
    return units;
  }

  /** The page with the token at a place of the text: guessed between the nearest places that are known, the better the more is known. */
  private pageAt(utf16: number): TokenColumns | null {
    const index = lastAtOrBefore(this.anchors.length, (at) => this.anchors[at][0], utf16);
    if (index < 0) return null;
    const [lowText, lowToken] = this.anchors[index];
    const [highText, highToken] = this.anchors[Math.min(index + 1, this.anchors.length - 1)];
    const part = highText > lowText ? (utf16 - lowText) / (highText - lowText) : 0;
    const guess = Math.min(lowToken + Math.floor(part * (highToken - lowToken)), Math.max(lowToken, highToken - 1));
    const page = this.pageOf(Math.min(guess, this.total - 1));
    if (!page) return null;
    const holds = page.utf16[0][0] <= utf16 && utf16 < page.utf16[page.utf16.length - 1][1];
    if (holds) return page;
    const neighbour = this.pages.get(Math.floor(page.start / PAGE) + (utf16 < page.utf16[0][0] ? -1 : 1));
    return neighbour && neighbour.utf16[0][0] <= utf16 && utf16 < neighbour.utf16[neighbour.utf16.length - 1][1] ? neighbour : null;
  }

  /** Pages that arrive together are drawn together. */
  private announce(): void {
    if (this.isAnnounced) return;
    this.isAnnounced = true;
    queueMicrotask(() => {
      this.isAnnounced = false;
      this.version.value += 1;
    });
  }

  private keep(index: number, page: TokenColumns): void {
    if (!page.ids.length) return;
    this.pages.delete(index);
    this.pages.set(index, page);
    this.anchors.push([page.utf16[0][0], page.start], [page.utf16[page.utf16.length - 1][1], page.end]);
    this.anchors.sort((one, other) => one[0] - other[0] || one[1] - other[1]);
    if (this.load && this.pages.size > MOST_PAGES) {
      const oldest = this.pages.keys().next().value!;
      this.pages.delete(oldest);
      this.asked.delete(oldest);
    }
  }
}
