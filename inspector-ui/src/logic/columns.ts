/** How text is shown in columns of one width: wide characters take two, control characters are shown by signs. */

/** Columns that a code point takes in a fixed-width font. */
export function width(codePoint: number): number {
  if (codePoint < 0x1100) return codePoint >= 0x300 && codePoint < 0x370 ? 0 : 1;
  if (codePoint === 0x200b || codePoint === 0x200d || (codePoint >= 0xfe00 && codePoint <= 0xfe0f)) return 0;
  const isWide =
    codePoint <= 0x115f ||
    (codePoint >= 0x2e80 && codePoint <= 0xa4cf) ||
    (codePoint >= 0xac00 && codePoint <= 0xd7a3) ||
    (codePoint >= 0xf900 && codePoint <= 0xfaff) ||
    (codePoint >= 0xfe30 && codePoint <= 0xfe6f) ||
    (codePoint >= 0xff00 && codePoint <= 0xff60) ||
    (codePoint >= 0x1f300 && codePoint <= 0x1faff) ||
    (codePoint >= 0x20000 && codePoint <= 0x3fffd);
  return isWide ? 2 : 1;
}

/** The text with a visible sign for what one cannot see; as long as the text, so that offsets stay. */
export function visible(text: string): string {
  // eslint-disable-next-line no-control-regex
  return text.replace(/[\u0000-\u001f\u007f]/g, (sign) =>
    sign === "\n" ? "↵" : sign === "\t" ? "⇥" : sign === "\u007f" ? "␡" : String.fromCharCode(0x2400 + sign.charCodeAt(0)),
  );
}

/** As `visible`, and blanks too: for a token, whose blanks matter. */
export function visibleToken(text: string): string {
  return visible(text).replace(/ /g, "␣");
}

/**
 * Where the row that begins at `start` ends: behind the next line break, or where `columns` are full: there at the last blank, if one
 * is not too far back.
 */
export function rowEnd(text: string, start: number, end: number, columns: number): number {
  let used = 0;
  let blank = -1;
  let index = start;
  while (index < end) {
    const codePoint = text.codePointAt(index)!;
    const length = codePoint > 0xffff ? 2 : 1;
    if (codePoint === 10) return index + 1;
    used += width(codePoint);
    if (used > columns && index > start) return blank > start && index - blank < columns * 0.4 ? blank : index;
    index += length;
    if (codePoint === 32) blank = index;
  }
  return end;
}
