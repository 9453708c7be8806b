/** The canonical conversation: tools, messages, the answer. */
import { useMemo } from "preact/hooks";
import type { Conversation, ConversationTool, Message, MessagePart, Segment, Span } from "../api/contract.ts";
import type { TokenStore } from "../link/token-store.ts";
import { layOut, rowAt, rowSpan, type Flow } from "../logic/flow.ts";
import { count } from "../logic/format.ts";
import { lastAtOrBefore, overlaps } from "../logic/spans.ts";
import { Role } from "../parts/badges.tsx";
import { ROW_HEIGHT, useColumns } from "../parts/measure.tsx";
import { PanelRows } from "../parts/panel-rows.tsx";
import { locale, t } from "../text/index.ts";
import { placeOf } from "./place.ts";
import { TextUnits } from "./text-units.tsx";

interface Props {
  conversation: Conversation;
  segments: readonly Segment[];
  text: string;
  tokens: TokenStore | null;
}

/** A heading, or a text over as many rows as it needs. */
interface Block {
  firstRow: number;
  rows: number;
  tokens: Span | null;
  head: preact.ComponentChildren | null;
  body: { text: string; flow: Flow; place: number | null; className: string } | null;
}

export function ConversationPanel({ conversation, segments, text, tokens }: Props) {
  const measured = useColumns(28);
  const { columns } = measured;
  const language = locale.value;
  const blocks = useMemo(() => (columns.value ? blocksOf(conversation, segments, text, columns.value) : []), [conversation, segments, text, columns.value, language]);
  tokens?.version.value;
  const last = blocks[blocks.length - 1];
  const row = (index: number) => {
    const block = blocks[lastAtOrBefore(blocks.length, (at) => blocks[at].firstRow, index)];
    if (block.head) {
      return (
        <div class="head-row" data-a={block.tokens?.[0]} data-b={block.tokens?.[1]}>
          {block.head}
        </div>
      );
    }
    const body = block.body!;
    const [start, end] = rowSpan(body.flow, index - block.firstRow);
    return (
      <div class={`text-row ${body.className}`}>
        <span class="mono">
          <TextUnits text={body.text.slice(start, end)} whole={block.tokens} place={body.place === null ? null : body.place + start} tokens={tokens} />
        </span>
      </div>
    );
  };
  return (
    <PanelRows
      measured={measured}
      panel="conversation"
      label={t("panel.conversation")}
      count={last ? last.firstRow + last.rows : 0}
      rowHeight={ROW_HEIGHT}
      render={row}
      madeOf={[blocks, tokens, tokens?.version.value]}
      rowsOf={(lit) => rowsOf(lit, blocks, tokens)}
    />
  );
}

function rowsOf(lit: Span, blocks: readonly Block[], tokens: TokenStore | null): [number, number] | null {
  const touched = blocks.filter((block) => block.tokens && block.body && overlaps(block.tokens, lit));
  const found = touched.length ? touched : blocks.filter((block) => block.tokens && overlaps(block.tokens, lit));
  if (!found.length) return null;
  const edge = (block: Block, token: number, side: 0 | 1): number => {
    const { body } = block;
    if (!body) return block.firstRow;
    const page = body.place === null ? null : tokens?.pageOf(token);
    if (!page) return side === 0 ? block.firstRow : block.firstRow + block.rows - 1;
    const utf16 = (page.utf16[token - page.start]?.[side] ?? 0) - body.place! - side;
    return block.firstRow + rowAt(body.flow, Math.max(0, Math.min(body.text.length - 1, utf16)));
  };
  return [edge(found[0], lit[0], 0), edge(found[found.length - 1], lit[1] - 1, 1)];
}

function blocksOf({ tools, messages, output, settings }: Conversation, segments: readonly Segment[], text: string, columns: number): Block[] {
  const blocks: Block[] = [];
  let rows = 0;
  const add = (block: Omit<Block, "firstRow">) => {
    blocks.push({ ...block, firstRow: rows });
    rows += block.rows;
  };
  const addText = (part: string, tokens: Span | null, className: string) => {
    if (!part) return;
    const flow = layOut(part, columns);
    add({ rows: flow.count, tokens, head: null, body: { text: part, flow, place: placeOf(part, tokens, segments, text), className } });
  };
  const addPart = (part: MessagePart, role: string) => {
    if (part.kind !== "text" || part.is_error || part.replayed) {
      add({ rows: 1, tokens: part.tokens, head: <PartHead part={part} />, body: null });
    }
    addText(part.text, part.tokens, `role-${role} part-${part.kind}`);
    if (part.cut) add({ rows: 1, tokens: part.tokens, head: <span class="note">{t("kind.cut", { count: count(part.cut, locale.value) })}</span>, body: null });
  };
  const addMessage = (message: Message, note: string) => {
    add({ rows: 1, tokens: message.tokens, head: <MessageHead message={message} note={note} />, body: null });
    message.parts.forEach((part) => addPart(part, message.role));
  };
  add({ rows: 1, tokens: null, head: <Settings settings={settings} />, body: null });
  for (const tool of tools) {
    add({ rows: 1, tokens: tool.tokens, head: <ToolHead tool={tool} />, body: null });
    addText([tool.description, tool.parameters === null ? null : JSON.stringify(tool.parameters)].filter(Boolean).join("\n"), tool.tokens, "role-frame part-tool");
  }
  messages.forEach((message) => addMessage(message, ""));
  if (output) addMessage(output, t("kind.answer"));
  return blocks;
}

function MessageHead({ message, note }: { message: Message; note: string }) {
  return (
    <span class="message-head">
      <Role role={message.role} />
      {note && <em>{note}</em>}
      <Size tokens={message.tokens} />
    </span>
  );
}

function PartHead({ part }: { part: MessagePart }) {
  return (
    <span class="part-head">
      <em>{t(`kind.${part.kind}`)}</em>
      {part.name && <code>{part.name}</code>}
      {part.call_id && <small>{part.call_id}</small>}
      {part.is_error && <strong class="problem">{t("kind.error")}</strong>}
      {part.replayed && <small class="replayed">⟲ {t("kind.replayed")}</small>}
    </span>
  );
}

function ToolHead({ tool }: { tool: ConversationTool }) {
  return (
    <span class="message-head">
      <em>{t("kind.tool")}</em>
      <code>{tool.name}</code>
      <Size tokens={tool.tokens} />
    </span>
  );
}

function Size({ tokens }: { tokens: Span | null }) {
  return <small class="size">{tokens ? t("unit.tokens", { count: count(tokens[1] - tokens[0], locale.value) }) : "–"}</small>;
}

/** What was asked besides the words: only what says something. */
function Settings({ settings }: { settings: Record<string, unknown> }) {
  const said = Object.entries(settings).flatMap(([name, value]) => {
    const text = typeof value === "object" && value !== null ? objectText(value) : String(value);
    return value === null || value === false || text === "" ? [] : [`${name} ${text}`];
  });
  const line = said.join(" · ");
  return (
    <span class="settings" title={line}>
      <em>{t("kind.settings")}</em> {line}
    </span>
  );
}

function objectText(value: object): string {
  if (Array.isArray(value)) return value.map(String).join(", ");
  return Object.entries(value)
    .filter(([, inner]) => inner !== null)
    .map(([name, inner]) => `${name} ${inner}`)
    .join(", ");
}
