/** The prefix graph: shared trunks once, branches under them. Arrow keys move, open and close, as in every tree. */
import { useRef } from "preact/hooks";
import { useSignal } from "@preact/signals";
import type { CacheNode, CacheState } from "../api/contract.ts";
import { summaries } from "../api/live.ts";
import { visible } from "../logic/columns.ts";
import { ago, bytes, count } from "../logic/format.ts";
import { openRows, type TreeRow } from "../logic/tree.ts";
import { TierBadge } from "../parts/badges.tsx";
import { address } from "../shell/route.ts";
import { locale, t } from "../text/index.ts";

export function Tree({ roots }: { roots: CacheNode[] }) {
  const closed = useSignal<ReadonlySet<string>>(new Set());
  const focused = useSignal<string | null>(null);
  const root = useRef<HTMLDivElement>(null);
  const rows = openRows(roots, (key) => closed.value.has(key));
  const largest = Math.max(1, ...rows.map(({ node }) => node.bytes));

  const toggle = (key: string, isClosed: boolean) => {
    const changed = new Set(closed.value);
    if (isClosed) changed.add(key);
    else changed.delete(key);
    closed.value = changed;
  };
  const focus = (row: TreeRow | undefined) => {
    if (!row) return;
    focused.value = row.node.key;
    requestAnimationFrame(() => root.current?.querySelector<HTMLElement>('[role="treeitem"][tabindex="0"]')?.focus());
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if ((event.target as Element).closest("a")) return;
    const index = Math.max(0, rows.findIndex(({ node }) => node.key === focused.value));
    const { node, parent } = rows[index];
    const isOpen = node.children.length > 0 && !closed.value.has(node.key);
    if (event.key === "ArrowDown") focus(rows[index + 1]);
    else if (event.key === "ArrowUp") focus(rows[index - 1]);
    else if (event.key === "Home") focus(rows[0]);
    else if (event.key === "End") focus(rows[rows.length - 1]);
    else if (event.key === "ArrowRight") isOpen ? focus(rows[index + 1]) : toggle(node.key, false);
    else if (event.key === "ArrowLeft") isOpen ? toggle(node.key, true) : focus(rows[parent]);
    else return;
    event.preventDefault();
  };

  return (
    <div class="tree" role="tree" aria-label={t("cache.tree")} ref={root} onKeyDown={onKeyDown} data-testid="cache-tree">
      {rows.map((row, index) => (
        <Item
          key={row.node.key}
          row={row}
          largest={largest}
          isClosed={closed.value.has(row.node.key)}
          isFocusable={focused.value === row.node.key || (index === 0 && !rows.some(({ node }) => node.key === focused.value))}
          onToggle={(isClosed) => toggle(row.node.key, isClosed)}
          onFocus={() => (focused.value = row.node.key)}
        />
      ))}
    </div>
  );
}

interface ItemProps {
  row: TreeRow;
  largest: number;
  isClosed: boolean;
  isFocusable: boolean;
  onToggle: (isClosed: boolean) => void;
  onFocus: () => void;
}

function Item({ row: { node, depth, place, siblings }, largest, isClosed, isFocusable, onToggle, onFocus }: ItemProps) {
  const language = locale.value;
  const hasChildren = node.children.length > 0;
  return (
    <div
      class="node"
      role="treeitem"
      aria-level={depth + 1}
      aria-setsize={siblings}
      aria-posinset={place + 1}
      aria-expanded={hasChildren ? !isClosed : undefined}
      tabIndex={isFocusable ? 0 : -1}
      style={{ "--depth": depth }}
      onFocus={onFocus}
    >
      {hasChildren ? (
        <button type="button" tabIndex={-1} class="twist" aria-label={t("cache.expand")} onClick={() => onToggle(!isClosed)}>
          {isClosed ? "▸" : "▾"}
        </button>
      ) : (
        <span class="twist" aria-hidden="true">
          ·
        </span>
      )}
      <span class="node-text mono">
        {visible(node.text)}
        {node.tail && node.tail !== node.text && <i> … {visible(node.tail.slice(-28))}</i>}
      </span>
      <span class="node-facts">
        <span title={t("cache.blocks", { count: count(node.num_blocks, language) })}>
          {count(node.tokens[0], language)}–{count(node.tokens[1], language)}
        </span>
        <span class="node-bytes">
          <i style={{ width: `${(node.bytes / largest) * 100}%` }} />
          <b>{bytes(node.bytes, language)}</b>
        </span>
        <TierBadge tier={node.tier} />
        {node.pins > 0 && <span class="pins">⚲ {t("cache.pins", { count: node.pins })}</span>}
        {node.state && <StateChip state={node.state} />}
      </span>
    </div>
  );
}

function StateChip({ state }: { state: CacheState }) {
  const language = locale.value;
  const request = summaries.value.find(({ id }) => id === state.request);
  const when =
    state.last_used_at_ms !== null
      ? t("cache.used", { when: ago(state.last_used_at_ms, Date.now(), language) })
      : state.last_used_rank === 0
        ? t("cache.usedLast")
        : t("cache.usedRank", { rank: state.last_used_rank + 1 });
  return (
    <span class="state-chip" title={state.cache_id}>
      <i aria-hidden="true">⚑</i> {t("cache.state")} {count(state.length, language)} · {t("cache.round", { number: state.round })} · {when}
      {state.is_unit && <> · {t("cache.unit")}</>}
      {request && (
        <>
          {" · "}
          <a href={address({ view: "request", id: request.id, tab: "panels" })}>{t("prefix.ofRequest", { number: request.number })}</a>
        </>
      )}
    </span>
  );
}
