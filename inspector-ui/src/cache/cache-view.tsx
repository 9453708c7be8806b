/** The cache: its budget, the live prefix graph as a tree, and what a context costs in each architecture. */
import { useEffect } from "preact/hooks";
import { useSignal } from "@preact/signals";
import type { Cache, Gauge } from "../api/contract.ts";
import { useLoaded } from "../api/loaded.ts";
import { gauge } from "../api/live.ts";
import { bytes, count } from "../logic/format.ts";
import { Shown } from "../parts/state.tsx";
import { locale, t } from "../text/index.ts";
import { KvTable } from "./kv-table.tsx";
import { Tree } from "./tree.tsx";

export function CacheView() {
  const again = useSignal(0);
  const live = gauge.value;
  // the graph is asked for again when the gauge says that something changed
  useEffect(() => void (again.value += 1), [live]);
  const cache = useLoaded<Cache>("cache", again.value).value;
  const retry = () => void (again.value += 1);
  return (
    <section class="cache" aria-labelledby="cache-title">
      <header class="title">
        <h1 id="cache-title">{t("cache.title")}</h1>
      </header>
      <Shown of={cache} retry={retry}>
        {(value) => (
          <>
            <Budget gauge={live ?? value.gauge} />
            <section aria-labelledby="tree-title">
              <h2 id="tree-title">{t("cache.tree")}</h2>
              {value.roots.length ? <Tree roots={value.roots} /> : <p class="empty">{t("cache.empty")}</p>}
              {value.cut ? <p class="note">{t("cache.cut", { count: value.cut })}</p> : null}
            </section>
          </>
        )}
      </Shown>
      <KvTable />
    </section>
  );
}

function Budget({ gauge: { resident_bytes: resident, capacity_bytes: capacity, pinned_bytes: pinned, reserved_bytes: reserved, ...rest } }: { gauge: Gauge }) {
  const language = locale.value;
  const loose = Math.max(0, resident - pinned);
  const free = Math.max(0, capacity - resident - reserved);
  const parts = [
    ["pinned", pinned, t("cache.pinned")],
    ["resident", loose, t("cache.resident")],
    ["reserved", reserved, t("cache.reserved")],
    ["free", free, t("cache.free")],
  ] as const;
  return (
    <section class="budget" aria-labelledby="budget-title" data-testid="gauge">
      <h2 id="budget-title">
        {t("cache.budget")} <small>{bytes(capacity, language)}</small>
      </h2>
      <div class="gauge" role="meter" aria-valuemin={0} aria-valuemax={capacity} aria-valuenow={resident + reserved} aria-label={t("cache.budget")} aria-valuetext={parts.map(([, size, text]) => `${text} ${bytes(size, language)}`).join(", ")}>
        {parts.map(([name, size]) => (
          <i key={name} class={name} style={{ width: `${(size / Math.max(1, capacity)) * 100}%` }} />
        ))}
      </div>
      <ul class="legend">
        {parts.map(([name, size, text]) => (
          <li key={name}>
            <i class={`swatch gauge-${name}`} aria-hidden="true" />
            {text} <b>{bytes(size, language)}</b>
          </li>
        ))}
        <li>
          {rest.ssd_capacity_bytes === null && rest.ssd_bytes === 0 ? (
            t("cache.noSsd")
          ) : (
            <>
              {t("cache.ssd")} <b>{bytes(rest.ssd_bytes, language)}</b> {rest.ssd_capacity_bytes !== null && <small>/ {bytes(rest.ssd_capacity_bytes, language)}</small>}
            </>
          )}
        </li>
        <li>{t("cache.counts", { states: count(rest.num_states, language), blocks: count(rest.num_blocks, language) })}</li>
      </ul>
    </section>
  );
}
