/** The prompt as the template wrote it: segments coloured by role, styled by who wrote them. */
import { useMemo } from "preact/hooks";
import type { Segment, Span } from "../api/contract.ts";
import type { TokenStore } from "../link/token-store.ts";
import { visible } from "../logic/columns.ts";
import { layOut, rowAt, rowSpan } from "../logic/flow.ts";
import { within } from "../logic/spans.ts";
import { roleLetter, roleOf, Swatch } from "../parts/badges.tsx";
import { ROW_HEIGHT, useColumns } from "../parts/measure.tsx";
import { PanelRows } from "../parts/panel-rows.tsx";
import { locale, named, t } from "../text/index.ts";

const GUTTER = 34;

interface Props {
  segments: Segment[];
  text: string;
  tokens: TokenStore;
  panel?: string;
}

export function TemplatePanel({ segments, text, tokens, panel = "segments" }: Props) {
  const measured = useColumns(GUTTER + 12);
  const { columns } = measured;
  const flow = useMemo(() => layOut(columns.value ? text : "", columns.value || 1), [text, columns.value]);
  tokens.version.value;

  const row = (index: number) => {
    const span = rowSpan(flow, index);
    const inRow = within(segments, (segment) => segment.utf16, span);
    const begins = inRow.find((segment) => segment.role !== null && segment.utf16[0] >= span[0] && isNewRole(segments, segment));
    const first = begins ?? inRow[0];
    return (
      <div class={`text-row role-${roleOf(first?.role ?? null)}`}>
        <i class="gutter" title={named("role.", roleOf(first?.role ?? null))}>
          {begins ? roleLetter(begins.role) : ""}
        </i>
        <span class="mono">
          {inRow.map((segment) => (
            <SegmentSlice key={segment.index} segment={segment} span={[Math.max(span[0], segment.utf16[0]), Math.min(span[1], segment.utf16[1])]} text={text} tokens={tokens} />
          ))}
        </span>
      </div>
    );
  };
  return (
    <PanelRows
      measured={measured}
      panel={panel}
      label={t("panel.segments")}
      count={flow.count}
      rowHeight={ROW_HEIGHT}
      render={row}
      madeOf={[flow, segments, tokens, tokens.version.value, locale.value]}
      rowsOf={(lit) => rowsOfTokens(lit, segments, tokens, (place) => rowAt(flow, place))}
    >
      <footer class="legend">
        <Swatch kind="origin client" text="origin.client" />
        <Swatch kind="origin template" text="origin.template" />
        <Swatch kind="origin tool_schema" text="origin.tool_schema" />
        <Swatch kind="origin model" text="origin.model" />
      </footer>
    </PanelRows>
  );
}

function SegmentSlice({ segment, span, text, tokens }: { segment: Segment; span: Span; text: string; tokens: TokenStore }) {
  const className = `segment origin-${segment.origin} kind-${segment.kind} role-${roleOf(segment.role)}`;
  if (segment.kind === "marker") {
    return (
      <span class={className} data-a={segment.tokens[0]} data-b={segment.tokens[1]} title={t("template.marker")}>
        {visible(text.slice(...span))}
      </span>
    );
  }
  return (
    <span class={className}>
      {tokens.units(span).map((unit) => (
        <span key={unit.utf16[0]} data-a={unit.tokens[0]} data-b={unit.tokens[1]}>
          {visible(text.slice(unit.utf16[0], unit.utf16[1]))}
        </span>
      ))}
    </span>
  );
}

function isNewRole(segments: readonly Segment[], segment: Segment): boolean {
  const before = segments[segment.index - 1];
  return !before || before.role !== segment.role || (before.message !== segment.message && segment.message !== null);
}

/** Rows of the text that tokens spell: exact where their page is here, else those of their segments. */
export function rowsOfTokens(tokens: Span, segments: readonly Segment[], store: TokenStore, rowOf: (utf16: number) => number): [number, number] | null {
  const place = (token: number, side: 0 | 1): number | null => {
    const page = store.pageOf(token);
    if (page) return page.utf16[token - page.start]?.[side] ?? null;
    const segment = within(segments, (item) => item.tokens, [token, token + 1])[0];
    return segment ? segment.utf16[side] : null;
  };
  const start = place(tokens[0], 0);
  const end = place(tokens[1] - 1, 1);
  return start === null || end === null ? null : [rowOf(start), rowOf(Math.max(start, end - 1))];
}
