/** A panel's body: its rows, once it is known how wide they are, and what stands under them. */
import type { ComponentChildren } from "preact";
import type { Measured } from "./measure.tsx";
import { VirtualRows, type VirtualRowsProps } from "./virtual-rows.tsx";

export function PanelRows({ measured, children, ...rows }: VirtualRowsProps & { measured: Measured; children?: ComponentChildren }) {
  return (
    <div class="panel-body" ref={measured.ref}>
      {measured.pixels.value > 0 && <VirtualRows {...rows} />}
      {children}
    </div>
  );
}
