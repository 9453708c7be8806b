/** A stretch of text as linked pieces: by the token where the tokens are known, else as one piece. */
import type { Span } from "../api/contract.ts";
import type { TokenStore } from "../link/token-store.ts";
import { visible } from "../logic/columns.ts";

interface Props {
  /** What is shown. */
  text: string;
  /** The tokens of the whole, where no place is known; null: nothing of it reached the model. */
  whole: Span | null;
  /** Where `text` begins on the text axis; null: unknown. */
  place: number | null;
  tokens: TokenStore | null;
}

export function TextUnits({ text, whole, place, tokens }: Props) {
  if (place === null || tokens === null) return <Unit text={text} tokens={whole} />;
  const units = tokens.units([place, place + text.length]);
  return (
    <>
      {units.map((unit) => (
        <Unit key={unit.utf16[0]} text={text.slice(unit.utf16[0] - place, unit.utf16[1] - place)} tokens={unit.tokens} />
      ))}
    </>
  );
}

export function Unit({ text, tokens, className }: { text: string; tokens: Span | null; className?: string }) {
  return (
    <span class={className} data-a={tokens?.[0]} data-b={tokens?.[1]}>
      {visible(text)}
    </span>
  );
}
