/** Numbers and durations as people read them, in the language of the page. */

export function count(value: number | null, language: string): string {
  return value === null ? "–" : new Intl.NumberFormat(language).format(value);
}

export function bytes(value: number | null, language: string): string {
  if (value === null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let size = value;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return `${new Intl.NumberFormat(language, { maximumFractionDigits: digits }).format(size)} ${units[unit]}`;
}

export function milliseconds(value: number | null, language: string): string {
  if (value === null) return "–";
  const format = (number: number, digits: number) => new Intl.NumberFormat(language, { maximumFractionDigits: digits }).format(number);
  if (value >= 60_000) return `${format(value / 60_000, 1)} min`;
  if (value >= 10_000) return `${format(value / 1000, 1)} s`;
  if (value >= 1000) return `${format(value / 1000, 2)} s`;
  return `${format(value, value >= 100 ? 0 : value >= 10 ? 1 : 2)} ms`;
}

/** Two or three digits that matter. */
export function shortNumber(value: number, language: string): string {
  return new Intl.NumberFormat(language, { maximumFractionDigits: value >= 10 ? 0 : 1 }).format(value);
}

export function share(value: number, language: string): string {
  const digits = value > 0 && value < 0.1 ? 1 : 0;
  return new Intl.NumberFormat(language, { style: "percent", maximumFractionDigits: digits }).format(value);
}

export function perSecond(value: number | null, language: string): string {
  if (value === null) return "–";
  return new Intl.NumberFormat(language, { maximumFractionDigits: value >= 100 ? 0 : 1 }).format(value);
}

export function money(value: number, currency: string, language: string): string {
  const digits = value === 0 ? 2 : Math.min(8, Math.max(2, 2 - Math.floor(Math.log10(Math.abs(value)))));
  const text = new Intl.NumberFormat(language, { maximumFractionDigits: digits }).format(value);
  return currency ? `${text} ${currency}` : text;
}

/** How long ago, in one unit. */
export function ago(at_ms: number | null, now_ms: number, language: string): string {
  if (at_ms === null) return "–";
  const seconds = Math.max(0, (now_ms - at_ms) / 1000);
  const format = new Intl.RelativeTimeFormat(language, { numeric: "always", style: "short" });
  if (seconds < 60) return format.format(-Math.round(seconds), "second");
  if (seconds < 3600) return format.format(-Math.round(seconds / 60), "minute");
  return format.format(-Math.round(seconds / 3600), "hour");
}
