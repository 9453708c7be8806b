/** The context and its state: what was hit, what was computed, in which blocks it lies. */
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Context, Span } from "../api/contract.ts";
import { useLinking } from "../link/linking.ts";
import { bytes, count } from "../logic/format.ts";
import { useColumns } from "../parts/measure.tsx";
import { VirtualRows } from "../parts/virtual-rows.tsx";
import { locale, t } from "../text/index.ts";

const BLOCK_WIDTH = 15;
const BLOCK_HEIGHT = 18;
/** What stands in a block that is kept: nothing for the plain case, resident; a block that is not kept is faint. */
const KEPT_SIGNS = { resident: "", ssd: "S", both: "+" };
const KEPT = ["resident", "ssd", "both", null] as const;

export function ContextPanel({ context, total }: { context: Context; total: number }) {
  const linking = useLinking();
  const bar = useRef<HTMLDivElement>(null);
  const language = locale.value;
  useLayoutEffect(() => linking.add("context", bar.current!, () => {}), []);
  useLayoutEffect(() => linking.paint(bar.current!));
  const { ref, pixels } = useColumns(0);
  const perRow = Math.max(1, Math.floor((pixels.value - 12) / BLOCK_WIDTH));
  const { blocks } = context;
  const rowsOf = ([start, end]: Span): [number, number] | null => {
    const touched = blocks.filter(({ tokens }) => tokens[0] < end && start < tokens[1]);
    return touched.length ? [Math.floor(touched[0].index / perRow), Math.floor(touched[touched.length - 1].index / perRow)] : null;
  };
  const blockRow = (row: number) => (
    <div class="block-row">
      {blocks.slice(row * perRow, (row + 1) * perRow).map((block) => {
        const kept = block.kept === null ? t("context.kept.none") : t(`context.kept.${block.kept}`);
        const words = `${block.tokens[0]}–${block.tokens[1] - 1}: ${t(`region.${block.kind}`)}, ${bytes(block.bytes, language)}, ${kept}`;
        return (
          <i key={block.index} class={`block ${block.kind} ${block.kept ?? "not-kept"}`} data-a={block.tokens[0]} data-b={block.tokens[1]} title={words}>
            {block.kept ? KEPT_SIGNS[block.kept] : ""}
          </i>
        );
      })}
    </div>
  );
  return (
    <div class="context-body">
      <div class="context-bar" ref={bar} role="img" aria-label={words(context, language)}>
        {context.spans.map((span) => (
          <div
            key={span.kind}
            class={`region ${span.kind}`}
            style={{ flexGrow: span.tokens[1] - span.tokens[0] }}
            data-a={span.tokens[0]}
            data-b={span.tokens[1]}
            data-testid={`region-${span.kind}`}
          />
        ))}
        <Marker total={total} />
      </div>
      <ul class="legend">
        {context.spans.map((span) => (
          <li key={span.kind}>
            <i class={`swatch ${span.kind}`} aria-hidden="true" />
            {t(`region.${span.kind}`)} <b>{count(span.tokens[1] - span.tokens[0], language)}</b> <small>{bytes(span.bytes, language)}</small>
          </li>
        ))}
        <li>{t("context.of", { used: count(total, language), total: count(context.context_length, language) })}</li>
        <li>{t("unit.perToken", { bytes: bytes(context.bytes_per_token, language) })}</li>
        <li>{t("context.blocks", { count: count(blocks.length, language), size: context.block_tokens })}</li>
        {KEPT.filter((kept) => blocks.some((block) => block.kept === kept)).map((kept) => (
          <li key={kept}>
            <i class={`block sample ${kept ?? "not-kept"}`} aria-hidden="true">
              {kept ? KEPT_SIGNS[kept] : ""}
            </i>
            {t(`context.kept.${kept ?? "none"}`)}
          </li>
        ))}
        {context.fixed_bytes > 0 && <li>{t("context.fixed", { bytes: bytes(context.fixed_bytes, language) })}</li>}
        <li>{context.cuttable ? t("context.cuttable") : t("context.whole")}</li>
        {context.hit_cache_id && (
          <li title={context.hit_cache_id}>
            {t("context.hit")} <code>{context.hit_cache_id.slice(0, 12)}</code>
          </li>
        )}
        {context.cache_id && (
          <li title={context.cache_id}>
            {t("context.end")} <code>{context.cache_id.slice(0, 12)}</code>
          </li>
        )}
      </ul>
      <div class="blocks" ref={ref} style={{ height: `${Math.min(3, Math.ceil(blocks.length / perRow)) * BLOCK_HEIGHT + 4}px` }}>
        {pixels.value > 0 && (
          <VirtualRows
            panel="context"
            label={t("context.blocks", { count: count(blocks.length, language), size: context.block_tokens })}
            count={Math.ceil(blocks.length / perRow)}
            rowHeight={BLOCK_HEIGHT}
            render={blockRow}
            rowsOf={rowsOf}
            madeOf={[blocks, perRow, language]}
          />
        )}
      </div>
    </div>
  );
}

/** Where the lit tokens lie on the bar. */
function Marker({ total }: { total: number }) {
  const link = useLinking().lit.value;
  if (!link || !total) return null;
  const [start, end] = link.tokens;
  return <span class="marker" style={{ left: `${(start / total) * 100}%`, width: `max(3px, ${((end - start) / total) * 100}%)` }} />;
}

function words({ spans }: Context, language: string): string {
  return spans.map(({ kind, tokens }) => `${t(`region.${kind}`)} ${count(tokens[1] - tokens[0], language)}`).join(", ");
}
