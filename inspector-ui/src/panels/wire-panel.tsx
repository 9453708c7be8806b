/** The bytes: the request as it came, the answer as it went out, each frame with its time. */
import { useMemo } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { get } from "../api/client.ts";
import type { Frame, Segment, Span, Wire, WirePart } from "../api/contract.ts";
import type { TokenStore } from "../link/token-store.ts";
import { visible } from "../logic/columns.ts";
import { count, milliseconds } from "../logic/format.ts";
import { decoded, jsonRows, type JsonRow, type Run, type Value } from "../logic/json-rows.ts";
import { overlaps } from "../logic/spans.ts";
import { ROW_HEIGHT, useColumns } from "../parts/measure.tsx";
import { PanelRows } from "../parts/panel-rows.tsx";
import { locale, t } from "../text/index.ts";
import { placeOf } from "./place.ts";

interface Props {
  id: string;
  wire: Wire;
  segments: readonly Segment[];
  text: string;
  tokens: TokenStore | null;
}

type Row =
  | { is: "title"; text: string; note: string }
  | { is: "header"; name: string; value: string }
  | { is: "body"; row: JsonRow }
  | { is: "frame"; frame: Frame }
  | { is: "data"; frame: Frame; row: JsonRow }
  | { is: "note"; text: string };

/** Values whose text enters the prompt as it is. */
const TEXT_KEYS = new Set(["content", "text", "thinking", "reasoning_content", "reasoning", "arguments", "output", "input", "instructions", "system", "name", "description"]);

export function WirePanel({ id, wire, segments, text, tokens }: Props) {
  const measured = useColumns(20);
  const { columns } = measured;
  const more = useSignal<Frame[]>([]);
  const language = locale.value;
  const frames = more.value.length ? [...wire.response.frames, ...more.value] : wire.response.frames;
  const rows = useMemo(() => (columns.value ? rowsOf(wire, frames, columns.value) : []), [wire, frames.length, columns.value, language]);
  const places = useMemo(() => new Map<Value, Place>(), [wire, text, segments]);
  tokens?.version.value;
  const left = wire.response.num_frames - frames.length;
  const loadMore = async () => {
    const found = await get<Wire>(`requests/${id}/wire?start=${frames.length}&end=${frames.length + 5000}`);
    more.value = [...more.value, ...found.response.frames];
  };
  const render = (index: number) => {
    const row = rows[index];
    switch (row.is) {
      case "title":
        return (
          <div class="head-row title-row">
            <b>{row.text}</b> <small>{row.note}</small>
          </div>
        );
      case "header":
        return (
          <div class="text-row header-row">
            <span class="mono">
              <i class="run key">{row.name}</i>: {row.value}
            </span>
          </div>
        );
      case "note":
        return <div class="head-row note">{row.text}</div>;
      case "frame":
        return (
          <div class="head-row frame-row" data-a={row.frame.tokens?.[0]} data-b={row.frame.tokens?.[1]}>
            <small class="at">+{milliseconds(row.frame.at_ms, locale.value)}</small> {row.frame.event && <b>{row.frame.event}</b>}
          </div>
        );
      case "data":
        return (
          <div class="text-row frame-data">
            <span class="mono" style={{ paddingLeft: `${row.row.depth * 2}ch` }} data-a={row.frame.tokens?.[0]} data-b={row.frame.tokens?.[1]}>
              {row.row.runs.map((run) => (
                <i key={run.at[0]} class={`run ${run.kind}`}>
                  {visible(row.frame.data.slice(...run.at))}
                </i>
              ))}
            </span>
          </div>
        );
      case "body":
        return (
          <div class="text-row">
            <span class="mono" style={{ paddingLeft: `${row.row.depth * 2}ch` }}>
              {row.row.runs.map((run) => (
                <BodyRun key={run.at[0]} run={run} wire={wire} places={places} segments={segments} text={text} tokens={tokens} />
              ))}
            </span>
          </div>
        );
    }
  };
  return (
    <PanelRows
      measured={measured}
      panel="wire"
      label={t("panel.wire")}
      count={rows.length}
      rowHeight={ROW_HEIGHT}
      render={render}
      madeOf={[rows, places, tokens, tokens?.version.value]}
      rowsOf={(lit) => litRows(lit, rows, wire, tokens, (value) => placed(value, wire, places, segments, text))}
    >
      {left > 0 && (
        <footer>
          <button type="button" onClick={loadMore}>
            {t("wire.moreFrames", { count: count(left, language) })}
          </button>
        </footer>
      )}
    </PanelRows>
  );
}

/** Where a string value stands on the text axis, and how to come from its raw characters to those of its text. */
interface Place {
  at: number | null;
  offsetOf: (raw: number) => number;
}

function BodyRun({ run, wire, places, segments, text, tokens }: { run: Run; wire: Wire; places: Map<Value, Place> } & Omit<Props, "id">) {
  const part = partAt(run.at[0], wire.parts);
  const whole = part?.tokens ?? null;
  const shown = wire.request.body.slice(...run.at);
  const place = run.value && tokens ? placed(run.value, wire, places, segments, text) : null;
  if (!place || place.at === null) {
    return (
      <i class={`run ${run.kind}`} data-a={whole?.[0]} data-b={whole?.[1]}>
        {visible(shown)}
      </i>
    );
  }
  return <i class={`run ${run.kind}`}>{linkedPieces(run, place, wire.request.body, tokens!)}</i>;
}

/** The raw characters of a run, cut where its text's tokens are. The quotes around the value are of no token. */
function linkedPieces(run: Run, place: Place, body: string, tokens: TokenStore): preact.ComponentChildren[] {
  const value = run.value!.at;
  const start = Math.max(run.at[0], value[0] + 1);
  const end = run.at[1] === value[1] && body[value[1] - 1] === '"' ? value[1] - 1 : run.at[1];
  const onAxis = (raw: number) => place.at! + place.offsetOf(raw - value[0]);
  const pieces: preact.ComponentChildren[] = [body.slice(run.at[0], start)];
  let raw = start;
  for (const unit of tokens.units([onAxis(start), onAxis(end)])) {
    const from = raw;
    while (raw < end && onAxis(raw) < unit.utf16[1]) raw += 1;
    pieces.push(
      <span key={from} data-a={unit.tokens[0]} data-b={unit.tokens[1]}>
        {visible(body.slice(from, raw))}
      </span>,
    );
  }
  pieces.push(visible(body.slice(raw, run.at[1])));
  return pieces;
}

function placed(value: Value, wire: Wire, places: Map<Value, Place>, segments: readonly Segment[], text: string): Place {
  let place = places.get(value);
  if (!place) {
    const part = partAt(value.at[0], wire.parts);
    const isText = value.key === null || TEXT_KEYS.has(value.key);
    const { text: said, offsetOf } = part?.tokens && isText ? decoded(wire.request.body.slice(...value.at)) : { text: "", offsetOf: () => 0 };
    place = { at: said ? placeOf(said, part!.tokens, segments, text) : null, offsetOf };
    places.set(value, place);
  }
  return place;
}

/** The smallest part around a place of the body. */
function partAt(utf16: number, parts: readonly WirePart[]): WirePart | null {
  let found: WirePart | null = null;
  for (const part of parts) {
    const isAround = part.utf16[0] <= utf16 && utf16 < part.utf16[1];
    if (isAround && (!found || part.utf16[1] - part.utf16[0] <= found.utf16[1] - found.utf16[0])) found = part;
  }
  return found;
}

function rowsOf({ request, response }: Wire, frames: readonly Frame[], columns: number): Row[] {
  const language = locale.value;
  const rows: Row[] = [{ is: "title", text: `${request.method} ${request.path}`, note: t("wire.request") }];
  for (const [name, value] of request.headers) rows.push({ is: "header", name, value });
  for (const row of jsonRows(request.body, columns)) rows.push({ is: "body", row });
  if (request.cut) rows.push({ is: "note", text: t("wire.cut", { count: count(request.cut, language) }) });
  const status = response.status === null ? t("wire.running") : t("wire.status", { status: response.status });
  rows.push({ is: "title", text: status, note: `${t("wire.response")} · ${t("wire.frames", { count: count(response.num_frames, language) })}` });
  for (const frame of frames) {
    rows.push({ is: "frame", frame });
    const isAnswer = frame.event === null && response.num_frames === 1;
    const data = isAnswer ? jsonRows(frame.data, columns) : wrapped(frame.data, columns);
    for (const row of data) rows.push({ is: "data", frame, row });
  }
  if (response.cut) rows.push({ is: "note", text: t("wire.cut", { count: count(response.cut, language) }) });
  return rows;
}

/** A frame is one line on the wire: it is only broken where the panel ends. */
function wrapped(data: string, columns: number): JsonRow[] {
  const rows: JsonRow[] = [];
  for (let at = 0; at < data.length; at += columns) {
    rows.push({ depth: 0, runs: [{ kind: "plain", at: [at, Math.min(data.length, at + columns)], value: null }] });
  }
  return rows;
}

/** Rows of the body, or of the frames, that show tokens. */
function litRows(lit: Span, rows: readonly Row[], wire: Wire, tokens: TokenStore | null, placeOfValue: (value: Value) => Place): [number, number] | null {
  const parts = wire.parts.filter((part) => part.tokens && overlaps(part.tokens, lit));
  const isShown = (row: Row): boolean => {
    if (row.is === "frame" || row.is === "data") return row.frame.tokens !== null && overlaps(row.frame.tokens, lit);
    if (row.is !== "body") return false;
    return parts.some((part) => row.row.runs.some((run) => overlaps(run.at, part.utf16)));
  };
  let first = rows.findIndex(isShown);
  if (first < 0) return null;
  let last = first;
  while (last + 1 < rows.length && isShown(rows[last + 1])) last += 1;
  const page = tokens?.pageOf(lit[0]);
  if (page) {
    const utf16 = page.utf16[lit[0] - page.start]?.[0] ?? -1;
    for (let index = first; index <= last; index += 1) {
      const row = rows[index];
      if (row.is !== "body") continue;
      for (const run of row.row.runs) {
        const place = run.value && placeOfValue(run.value);
        if (!place || place.at === null) continue;
        const [from, to] = [place.offsetOf(run.at[0] - run.value!.at[0]), place.offsetOf(run.at[1] - run.value!.at[0])];
        if (place.at + from <= utf16 && utf16 < place.at + to) return [index, index];
      }
    }
  }
  return [first, last];
}
