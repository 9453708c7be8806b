/** How each token of the answer came to be. */
import { useMemo } from "preact/hooks";
import { get } from "../api/client.ts";
import type { Decode, DecodedToken, Detail, Round, Span } from "../api/contract.ts";
import { useLoaded, type Loaded } from "../api/loaded.ts";
import { wantsAlternatives } from "../api/live.ts";
import { visibleToken } from "../logic/columns.ts";
import { count, milliseconds, share } from "../logic/format.ts";
import { lastAtOrBefore } from "../logic/spans.ts";
import { spacedHex } from "../logic/merges.ts";
import { Shown } from "../parts/state.tsx";
import { VirtualRows } from "../parts/virtual-rows.tsx";
import { locale, named, t } from "../text/index.ts";
import { useSignal } from "@preact/signals";

const PAGE = 5000;
const ROW = 24;

export function DecodeTab({ detail }: { detail: Detail }) {
  const { id, state, output_tokens: output } = detail.summary;
  const path = detail.panels.decode ? `requests/${id}/decode?start=0&end=${PAGE}` : null;
  const found = useLoaded<Decode>(path, `${state} ${output}`).value;
  if (!detail.panels.decode) return <p class="empty">{t("panel.empty")}</p>;
  return (
    <div class="decode">
      <Shown of={found as Loaded<Decode>}>{(decode) => <Decoded id={id} first={decode} />}</Shown>
    </div>
  );
}

type Row = { round: Round } | { token: DecodedToken };

function Decoded({ id, first }: { id: string; first: Decode }) {
  const more = useSignal<Decode[]>([]);
  const pages = [first, ...more.value];
  const tokens = pages.flatMap((page) => page.tokens);
  const rounds = pages.flatMap((page) => page.rounds);
  const rows = useMemo(() => rowsOf(tokens, rounds), [first, more.value]);
  const language = locale.value;
  const loadMore = async () => {
    const page = await get<Decode>(`requests/${id}/decode?start=${tokens.length}&end=${tokens.length + PAGE}`);
    more.value = [...more.value, page];
  };
  const positions = rows.map((row) => ("token" in row ? row.token.position : row.round.tokens[0]));
  const rowsOfSpan = ([start, end]: Span): [number, number] | null => {
    const to = lastAtOrBefore(rows.length, (row) => positions[row], end - 1);
    if (to < 0 || positions[to] < start) return null;
    return [Math.max(0, lastAtOrBefore(rows.length, (row) => positions[row], start)), to];
  };
  return (
    <>
      <Tally tokens={tokens} rounds={rounds} decode={first} />
      {tokens.length === 0 ? (
        <p class="empty">{t("decode.empty")}</p>
      ) : (
        <>
          <div class="decode-head" aria-hidden="true">
            <span>{t("decode.token")}</span>
            <span>{t("decode.how")}</span>
            <span>{t("decode.phase")}</span>
            <span>{t("decode.time")}</span>
            <span>{t("decode.probability")}</span>
            <span>{t("decode.alternatives")}</span>
          </div>
          <VirtualRows
            panel="decode"
            label={t("tab.decode")}
            count={rows.length}
            rowHeight={ROW}
            className="decode-rows"
            rowsOf={rowsOfSpan}
            madeOf={[rows, language]}
            render={(row) => ("token" in rows[row] ? <TokenRow token={(rows[row] as { token: DecodedToken }).token} /> : <RoundRow round={(rows[row] as { round: Round }).round} />)}
          />
        </>
      )}
      {tokens.length < first.total && (
        <button type="button" onClick={loadMore}>
          {t("wire.moreFrames", { count: count(first.total - tokens.length, language) })}
        </button>
      )}
    </>
  );
}

/** A heading before each round that guessed, or that gave several tokens. */
function rowsOf(tokens: readonly DecodedToken[], rounds: readonly Round[]): Row[] {
  const byNumber = new Map(rounds.map((round) => [round.round, round]));
  const rows: Row[] = [];
  let before = -1;
  for (const token of tokens) {
    const round = byNumber.get(token.round);
    if (round && token.round !== before && (round.proposed.length > 0 || round.tokens[1] - round.tokens[0] > 1)) rows.push({ round });
    before = token.round;
    rows.push({ token });
  }
  return rows;
}

export const HOW_SIGNS = { sampled: "●", forced: "■", accepted: "◆" };

function Tally({ tokens, rounds, decode }: { tokens: readonly DecodedToken[]; rounds: readonly Round[]; decode: Decode }) {
  const language = locale.value;
  const counted = (how: DecodedToken["how"]) => tokens.filter((token) => token.how === how).length;
  const rejected = rounds.reduce((sum, { proposed }) => sum + proposed.filter(({ accepted }) => !accepted).length, 0);
  const excluded = tokens.reduce((sum, token) => sum + token.excluded.length, 0);
  const figures = [
    ["sampled", "●", counted("sampled")],
    ["forced", "■", counted("forced")],
    ["accepted", "◆", counted("accepted")],
    ["rejected", "◇", rejected],
    ["excluded", "⊘", excluded],
  ] as const;
  return (
    <header class="tally">
      <ul data-testid="decode-tally">
        {figures.map(([name, sign, number]) => (
          <li key={name} class={`how ${name} ${number ? "" : "nothing"}`}>
            <i aria-hidden="true">{sign}</i>
            {t(`decode.${name}`)} <b>{count(number, language)}</b>
          </li>
        ))}
        <li class="note">{decode.drafter ? t("decode.drafter", { name: decode.drafter }) : t("decode.noDrafter")}</li>
        <li class="note">{decode.fence ? t("decode.fence") : t("decode.noFence")}</li>
      </ul>
      <label class="record">
        <input type="checkbox" checked={wantsAlternatives.value} onChange={(event) => (wantsAlternatives.value = event.currentTarget.checked)} />
        {t("decode.record")}
      </label>
      <p class="note">{wantsAlternatives.value ? t("decode.recordHint") : !decode.alternatives && t("decode.noAlternatives")}</p>
    </header>
  );
}

function RoundRow({ round }: { round: Round }) {
  const accepted = round.proposed.filter((guess) => guess.accepted).length;
  return (
    <div class="round-row" data-a={round.tokens[0]} data-b={round.tokens[1]}>
      <b>{t("decode.round", { number: round.round })}</b>
      {round.proposed.length > 0 && (
        <>
          <span>{t("decode.block", { accepted, proposed: round.proposed.length })}</span>
          <span class="guesses">
            {round.proposed.map((guess, index) => (
              <span key={index} class={`guess ${guess.accepted ? "accepted" : "rejected"}`} title={guess.accepted ? t("decode.accepted") : t("decode.rejected")}>
                <i aria-hidden="true">{guess.accepted ? "◆" : "◇"}</i>
                <code>{visibleToken(guess.text ?? `#${guess.id}`)}</code>
              </span>
            ))}
          </span>
        </>
      )}
    </div>
  );
}

function TokenRow({ token }: { token: DecodedToken }) {
  const language = locale.value;
  const probability = token.logprob === null ? null : Math.exp(token.logprob);
  return (
    <div class={`decoded ${token.how}`} data-a={token.position} data-b={token.position + 1}>
      <span class="piece">
        <code class={token.special ? "special" : ""}>{token.text === null ? spacedHex(token.bytes) : visibleToken(token.text)}</code>
        <small>{token.id}</small>
      </span>
      <span class={`how ${token.how}`}>
        <i aria-hidden="true">{HOW_SIGNS[token.how]}</i>
        {t(`decode.${token.how}`)}
      </span>
      <span class="phase">{token.phase ? named("phase.", token.phase) : "–"}</span>
      <span class="time">{milliseconds(token.at_ms, language)}</span>
      <span class="probability">
        {probability !== null && (
          <>
            <i style={{ width: `${probability * 100}%` }} />
            <b>{share(probability, language)}</b>
          </>
        )}
      </span>
      <span class="alternatives">
        {token.top?.map((top) => (
          <span key={top.id} class={`alternative ${top.id === token.id ? "taken" : ""}`} title={`#${top.id}`}>
            <code>{top.text === null ? spacedHex(top.bytes) : visibleToken(top.text)}</code> <small>{share(Math.exp(top.logprob), language)}</small>
          </span>
        ))}
        {token.excluded.map((excluded) => (
          <span key={`x${excluded.id}`} class="alternative excluded" title={t("decode.excluded")}>
            <i aria-hidden="true">⊘</i>
            <code>{visibleToken(excluded.text ?? `#${excluded.id}`)}</code>
          </span>
        ))}
      </span>
    </div>
  );
}
