/** The page's language, chosen by a person or else by the browser, and its texts. */
import { computed, effect, signal } from "@preact/signals";
import { en, type Key } from "./en.ts";
import { zh } from "./zh.ts";

export type { Key };
export type Language = "en" | "zh";

const DICTIONARIES: Record<Language, Record<Key, string>> = { en, zh };
const STORED = "zllm-inspect-language";

export const language = signal<Language>(stored() ?? (navigator.language.startsWith("zh") ? "zh" : "en"));
/** For Intl and the `lang` attribute. */
export const locale = computed(() => (language.value === "zh" ? "zh-CN" : "en"));

effect(() => {
  document.documentElement.lang = locale.value;
});

export function nextLanguage(): void {
  language.value = language.value === "en" ? "zh" : "en";
  localStorage.setItem(STORED, language.value);
}

/** The text of a key, filled in. */
export function t(key: Key, values: Record<string, string | number> = {}): string {
  const text: string = DICTIONARIES[language.value][key];
  return text.replace(/\{(\w+)\}/g, (_, name: string) => String(values[name] ?? `{${name}}`));
}

/** The text of `${prefix}${name}` where the dictionary has one, else the name itself: for names that the server chooses. */
export function named(prefix: string, name: string): string {
  const key = (prefix + name) as Key;
  return key in en ? t(key) : name;
}

function stored(): Language | null {
  const found = localStorage.getItem(STORED);
  return found === "en" || found === "zh" ? found : null;
}
