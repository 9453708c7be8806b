/** Light or dark: as the system has it, unless a person chose. The style sheet reads `data-theme`. */
import { effect, signal } from "@preact/signals";

export const THEMES = ["auto", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const STORED = "zllm-inspect-theme";

export const theme = signal<Theme>(THEMES.find((name) => name === localStorage.getItem(STORED)) ?? "auto");

effect(() => {
  if (theme.value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
});

export function nextTheme(): void {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length];
  localStorage.setItem(STORED, theme.value);
}
