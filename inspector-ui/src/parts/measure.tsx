/** How many columns of the fixed-width font fit. */
import { useLayoutEffect, useRef } from "preact/hooks";
import { useSignal, type ReadonlySignal } from "@preact/signals";
import type { RefObject } from "preact";

export const ROW_HEIGHT = 18;

let characterWidth = 0;

function widthOfCharacter(): number {
  if (!characterWidth) {
    const probe = document.createElement("span");
    probe.className = "mono probe";
    probe.textContent = "0".repeat(100);
    document.body.append(probe);
    characterWidth = probe.getBoundingClientRect().width / 100 || 7;
    probe.remove();
  }
  return characterWidth;
}

/** Width in pixels and in columns of the element that gets `ref`; 0 until it is laid out. */
export interface Measured {
  ref: RefObject<HTMLDivElement>;
  columns: ReadonlySignal<number>;
  pixels: ReadonlySignal<number>;
}

/** `taken`: pixels that rows do not have. */
export function useColumns(taken: number): Measured {
  const ref = useRef<HTMLDivElement>(null);
  const columns = useSignal(0);
  const pixels = useSignal(0);
  useLayoutEffect(() => {
    const measure = () => {
      const width = ref.current?.clientWidth; // none: it has left the page
      if (!width) return;
      pixels.value = width;
      columns.value = Math.max(16, Math.floor((width - taken) / widthOfCharacter()) - 1);
    };
    const observer = new ResizeObserver(measure);
    observer.observe(ref.current!);
    measure();
    return () => observer.disconnect();
  }, []);
  return { ref: ref as RefObject<HTMLDivElement>, columns, pixels };
}
