/** What the playground keeps while one looks at other views. */
import { signal } from "@preact/signals";
import type { Draft } from "./draft.ts";

export const draft = signal<Draft | null>(null);
export const familyName = signal<string | null>(null);
/** Name of the control of thinking; null: as the template does. */
export const controlName = signal<string | null>(null);
