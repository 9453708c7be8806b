/**
 * JSON as it came, broken into rows for reading: the characters of every value stay as they were sent (number text, escapes, order,
 * duplicate keys); only white space between them is laid out anew. Text that is no JSON is broken into plain rows.
 */
import type { Span } from "../api/contract.ts";
import { width } from "./columns.ts";

export type RunKind = "key" | "string" | "number" | "literal" | "punctuation" | "plain";

/** `at` is where the run lies in the body. */
export interface Run {
  kind: RunKind;
  at: Span;
  /** The whole string value that the run is a row of, quotes included; the same object for all its rows. */
  value: Value | null;
}

export interface Value {
  at: Span;
  key: string | null;
}

export interface JsonRow {
  depth: number;
  runs: Run[];
}

export function jsonRows(body: string, columns: number): JsonRow[] {
  const rows: JsonRow[] = [];
  const reader = new Reader(body, columns, rows);
  if (!reader.document()) return plainRows(body, columns);
  return rows;
}

/** What a JSON string says, and how far in it each of its raw characters stands. `raw` has its quotes; it may be cut off. */
export function decoded(raw: string): { text: string; offsetOf: (rawOffset: number) => number } {
  const hasEscapes = raw.includes("\\");
  if (!hasEscapes) {
    const text = raw.slice(1, raw.endsWith('"') && raw.length > 1 ? -1 : undefined);
    return { text, offsetOf: (rawOffset) => Math.min(text.length, Math.max(0, rawOffset - 1)) };
  }
  const escapes: number[] = []; // raw ends of escapes, and by how much they shorten, cumulated
  const shortened: number[] = [0];
  const text: string[] = [];
  let plain = 1;
  let at = 1;
  while (at < raw.length && raw[at] !== '"') {
    if (raw[at] !== "\\") {
      at += 1;
      continue;
    }
    text.push(raw.slice(plain, at));
    const length = raw[at + 1] === "u" ? 6 : 2;
    text.push(escapeOf(raw.slice(at, at + length)));
    at += length;
    plain = at;
    escapes.push(at);
    shortened.push(shortened[shortened.length - 1] + length - 1);
  }
  text.push(raw.slice(plain, at));
  const whole = text.join("");
  return {
    text: whole,
    offsetOf(rawOffset) {
      let low = 0;
      let high = escapes.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (escapes[middle] <= rawOffset) low = middle + 1;
        else high = middle;
      }
      return Math.min(whole.length, Math.max(0, rawOffset - 1 - shortened[low]));
    },
  };
}

function escapeOf(escape: string): string {
  const simple: Record<string, string> = { n: "\n", t: "\t", r: "\r", b: "\b", f: "\f" };
  if (escape[1] === "u") return String.fromCharCode(parseInt(escape.slice(2), 16) || 0xfffd);
  return simple[escape[1]] ?? escape[1] ?? "";
}

function plainRows(body: string, columns: number): JsonRow[] {
  const rows: JsonRow[] = [];
  for (let at = 0; at < body.length; ) {
    const end = stringRowEnd(body, at, body.length, columns);
    rows.push({ depth: 0, runs: [{ kind: "plain", at: [at, end], value: null }] });
    at = end;
  }
  return rows;
}

const NUMBER = /-?\d[\d.eE+-]*/y;
const LITERAL = /true|false|null/y;
const BLANK = /[ \t\r\n]*/y;
const DEEPEST = 200;

/** Reads values and writes rows. A cut-off body is shown up to its end; what is no JSON makes `document` false. */
class Reader {
  private at = 0;
  private depth = 0;
  private row: JsonRow | null = null;
  private readonly body: string;
  private readonly columns: number;
  private readonly rows: JsonRow[];

  constructor(body: string, columns: number, rows: JsonRow[]) {
    this.body = body;
    this.columns = columns;
    this.rows = rows;
  }

  document(): boolean {
    this.blank();
    if (this.at === this.body.length || !'{["'.includes(this.body[this.at])) return false;
    const isRead = this.value(null);
    this.blank();
    return isRead && this.at === this.body.length;
  }

  private value(key: string | null): boolean {
    const first = this.body[this.at];
    if (first === undefined) return true; // cut off here
    if (first === "{" || first === "[") return this.container(first === "{" ? "}" : "]");
    if (first === '"') return this.string("string", key);
    return this.match(NUMBER, "number") || this.match(LITERAL, "literal");
  }

  private container(closer: string): boolean {
    if (this.depth > DEEPEST) return false;
    this.sign();
    this.blank();
    if (this.body[this.at] === closer) {
      this.sign();
      return true;
    }
    this.depth += 1;
    for (;;) {
      this.row = null;
      this.blank();
      if (this.at === this.body.length) break;
      let key: string | null = null;
      if (closer === "}") {
        const start = this.at;
        if (this.body[start] !== '"' || !this.string("key", null)) return false;
        key = this.body.slice(start + 1, this.at - 1);
        this.blank();
        if (this.body[this.at] === ":") this.sign();
        else if (this.at < this.body.length) return false;
        this.blank();
      }
      if (!this.value(key)) return false;
      this.blank();
      if (this.body[this.at] === ",") this.sign();
      else if (this.body[this.at] === closer || this.at === this.body.length) break;
      else return false;
    }
    this.depth -= 1;
    this.row = null;
    if (this.at < this.body.length) this.sign();
    return true;
  }

  private string(kind: "key" | "string", key: string | null): boolean {
    let end = this.at + 1;
    while (end < this.body.length && this.body[end] !== '"') end += this.body[end] === "\\" ? 2 : 1;
    end = Math.min(this.body.length, end + 1);
    const value = kind === "string" ? { at: [this.at, end] as Span, key } : null;
    let used = this.used();
    while (this.at < end) {
      const room = Math.max(8, this.columns - this.depth * 2 - used);
      const rowEnd = stringRowEnd(this.body, this.at, end, room);
      this.add({ kind, at: [this.at, rowEnd], value });
      this.at = rowEnd;
      if (this.at < end) {
        this.row = null;
        used = 0;
      }
    }
    return true;
  }

  private used(): number {
    return this.row ? this.row.runs.reduce((sum, { at }) => sum + at[1] - at[0] + 1, 0) : 0;
  }

  private match(pattern: RegExp, kind: RunKind): boolean {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.body);
    if (!found) return false;
    this.add({ kind, at: [this.at, this.at + found[0].length], value: null });
    this.at += found[0].length;
    return true;
  }

  private sign(): void {
    this.add({ kind: "punctuation", at: [this.at, this.at + 1], value: null });
    this.at += 1;
  }

  private add(run: Run): void {
    if (!this.row) {
      this.row = { depth: this.depth, runs: [] };
      this.rows.push(this.row);
    }
    this.row.runs.push(run);
  }

  private blank(): void {
    BLANK.lastIndex = this.at;
    this.at += BLANK.exec(this.body)![0].length;
  }
}

/** A row of a raw string ends behind an escaped line break, or where the columns are full (never inside an escape). */
function stringRowEnd(body: string, start: number, end: number, columns: number): number {
  let used = 0;
  let blank = -1;
  let at = start;
  while (at < end) {
    const codePoint = body.codePointAt(at)!;
    let length = codePoint > 0xffff ? 2 : 1;
    if (codePoint === 10) return at + 1;
    let takes = width(codePoint);
    if (codePoint === 92) {
      length = body[at + 1] === "u" ? 6 : 2;
      takes = length;
    }
    used += takes;
    if (used > columns && at > start) return blank > start && at - blank < columns * 0.4 ? blank : at;
    at = Math.min(end, at + length);
    if (codePoint === 92 && body[at - 1] === "n" && length === 2 && at < end - 1) return at;
    if (codePoint === 32) blank = at;
  }
  return end;
}
