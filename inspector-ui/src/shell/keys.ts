/**
 * Keyboard shortcuts. A view adds its own while it is shown; what lies further in (a higher level) is asked first. A key means what is on
 * the page: what answers to it changes in the same step as what is drawn, not a frame later.
 */
import { useLayoutEffect, useRef } from "preact/hooks";

/** Returns true where it did something with the key. */
export type KeyUse = (key: string, event: KeyboardEvent) => boolean;

const uses: { use: KeyUse; level: number }[] = [];

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (document.querySelector("dialog[open]")) return;
  const target = event.target as HTMLElement;
  if (target.closest("input, textarea, select")) {
    if (event.key === "Escape") target.blur();
    return;
  }
  const asked = [...uses].sort((one, other) => other.level - one.level);
  if (asked.some(({ use }) => use(event.key, event))) event.preventDefault();
});

export function useKeys(use: KeyUse, level: number): void {
  const added = useRef({ use, level }).current;
  useLayoutEffect(() => void (added.use = use));
  useLayoutEffect(() => {
    uses.push(added);
    return () => void uses.splice(uses.indexOf(added), 1);
  }, []);
}
