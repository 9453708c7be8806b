/** Every token in a cell of its own: text or bytes, id, and what is special about it. */
import type { Segment, Span } from "../api/contract.ts";
import { FLAG } from "../api/contract.ts";
import type { TokenStore } from "../link/token-store.ts";
import { visibleToken } from "../logic/columns.ts";
import { spacedHex } from "../logic/merges.ts";
import { roleOf, Swatch } from "../parts/badges.tsx";
import { useColumns } from "../parts/measure.tsx";
import { PanelRows } from "../parts/panel-rows.tsx";
import { t } from "../text/index.ts";

const CELL_WIDTH = 92;
const CELL_HEIGHT = 36;

export function TokensPanel({ tokens, segments, panel = "tokens" }: { tokens: TokenStore; segments: readonly Segment[]; panel?: string }) {
  const measured = useColumns(0);
  const { pixels } = measured;
  const perRow = Math.max(1, Math.floor((pixels.value - 12) / CELL_WIDTH));
  tokens.version.value;
  const row = (index: number) => {
    const cells = [];
    for (let token = index * perRow; token < Math.min(tokens.total, (index + 1) * perRow); token += 1) {
      cells.push(<Cell key={token} tokens={tokens} token={token} segments={segments} />);
    }
    return <div class="token-row">{cells}</div>;
  };
  const rowsOf = ([start, end]: Span): [number, number] => [Math.floor(start / perRow), Math.floor((end - 1) / perRow)];
  return (
    <PanelRows measured={measured} panel={panel} label={t("panel.tokens")} count={Math.ceil(tokens.total / perRow)} rowHeight={CELL_HEIGHT} render={row} rowsOf={rowsOf} madeOf={[tokens, tokens.version.value, perRow]}>
      <footer class="legend">
        <Swatch kind="flag special" text="tokens.special" />
        <Swatch kind="flag partial" text="tokens.partial" />
        <Swatch kind="flag reused" text="tokens.reused" />
        <Swatch kind="flag output" text="tokens.output" />
      </footer>
    </PanelRows>
  );
}

function Cell({ tokens, token, segments }: { tokens: TokenStore; token: number; segments: readonly Segment[] }) {
  const page = tokens.pageOf(token);
  if (!page) return <span class="token waiting" data-a={token} data-b={token + 1} />;
  const at = token - page.start;
  const flags = page.flags[at];
  const text = page.text[at];
  const names = (Object.keys(FLAG) as (keyof typeof FLAG)[]).filter((name) => flags & FLAG[name]);
  const isBytes = text === null;
  return (
    <span class={`token ${names.join(" ")} role-${roleOf(segments[page.segments[at]]?.role ?? null)}`} data-a={token} data-b={token + 1}>
      <b class={isBytes ? "bytes" : ""}>{isBytes ? spacedHex(page.bytes[at]) : visibleToken(text)}</b>
      <small>{page.ids[at]}</small>
    </span>
  );
}
