/** Rows of one height, of which only those in sight are drawn, and a rail that shows where the lit tokens are. */
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { useSignal } from "@preact/signals";
import type { Span } from "../api/contract.ts";
import { useLinking } from "../link/linking.ts";

export interface VirtualRowsProps {
  /** The panel's name, as in `Link.from`. */
  panel: string;
  label: string;
  count: number;
  rowHeight: number;
  render: (row: number) => ComponentChildren;
  /** Rows `[first, last]` that show these tokens; null: none does. */
  rowsOf: (tokens: Span) => [number, number] | null;
  /** What rows are made of: while all of it is the same, a row that was drawn is not made again. */
  madeOf: readonly unknown[];
  className?: string;
}

const OVERSCAN = 6;

export function VirtualRows({ panel, label, count, rowHeight, render, rowsOf, madeOf, className = "" }: VirtualRowsProps) {
  const linking = useLinking();
  const scroller = useRef<HTMLDivElement>(null);
  const first = useSignal(0);
  const inSight = useSignal(40);
  const made = useRef<{ of: readonly unknown[]; rows: Map<number, ComponentChildren> }>({ of: [], rows: new Map() });
  const latest = useRef({ rowsOf, rowHeight });
  latest.current = { rowsOf, rowHeight };

  useLayoutEffect(() => {
    const element = scroller.current!;
    let wasShown = false;
    const measure = () => {
      const isShown = element.clientHeight > 0;
      const lit = linking.lit.peek();
      if (isShown && !wasShown && lit && linking.follows.peek()) reveal(element, latest.current, lit.tokens); // it comes late
      wasShown = isShown;
      inSight.value = Math.ceil(element.clientHeight / latest.current.rowHeight);
      first.value = Math.floor(element.scrollTop / latest.current.rowHeight);
    };
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    const remove = linking.add(panel, element, (tokens) => reveal(element, latest.current, tokens));
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", measure);
      remove();
    };
  }, []);
  useLayoutEffect(() => linking.paint(scroller.current!));

  const from = Math.max(0, Math.min(first.value, count - 1) - OVERSCAN);
  const to = Math.min(count, first.value + inSight.value + OVERSCAN);
  const isSame = madeOf.length === made.current.of.length && madeOf.every((value, index) => value === made.current.of[index]);
  const before = isSame ? made.current.rows : new Map<number, ComponentChildren>();
  const rows = new Map<number, ComponentChildren>();
  for (let row = from; row < to; row += 1) {
    rows.set(row, before.get(row) ?? <div class="row" key={row}>{render(row)}</div>);
  }
  made.current = { of: madeOf, rows };
  return (
    <div class={`virtual ${className}`}>
      <div class="scroller" ref={scroller} tabIndex={0} role="group" aria-label={label} data-panel={panel}>
        <div class="height" style={{ height: `${count * rowHeight}px` }}>
          <div class="window" style={{ transform: `translateY(${from * rowHeight}px)`, "--row": `${rowHeight}px` }}>
            {[...rows.values()]}
          </div>
        </div>
      </div>
      <Rail count={count} rowsOf={rowsOf} />
    </div>
  );
}

function Rail({ count, rowsOf }: { count: number; rowsOf: VirtualRowsProps["rowsOf"] }) {
  const lit = useLinking().lit.value;
  const rows = lit && count > 0 ? rowsOf(lit.tokens) : null;
  if (!rows) return <div class="rail" aria-hidden="true" />;
  const top = (rows[0] / count) * 100;
  const height = Math.max(0.6, ((rows[1] - rows[0] + 1) / count) * 100);
  return (
    <div class="rail" aria-hidden="true">
      <i style={{ top: `min(${top}%, calc(100% - 4px))`, height: `${height}%` }} />
    </div>
  );
}

/** Scrolls so that the first row of the tokens is in sight; does nothing where one of their rows is. */
function reveal(element: HTMLElement, { rowsOf, rowHeight }: { rowsOf: VirtualRowsProps["rowsOf"]; rowHeight: number }, tokens: Span): void {
  const rows = rowsOf(tokens);
  if (!rows) return;
  const top = element.scrollTop / rowHeight;
  const bottom = top + element.clientHeight / rowHeight;
  if (rows[0] + 0.5 < bottom && rows[1] + 0.5 > top) return;
  element.scrollTop = Math.max(0, (rows[0] - 2) * rowHeight);
}
