/** Small marks that say the same thing the same way everywhere: by colour, and by shape or letter too. */
import { named, t, type Key } from "../text/index.ts";

const ROLE_LETTERS: Record<string, string> = { system: "S", developer: "D", user: "U", assistant: "A", tool: "T", frame: "·" };

export function roleOf(role: string | null): string {
  return role ?? "frame";
}

export function Role({ role }: { role: string | null }) {
  const name = roleOf(role);
  return (
    <span class={`role role-${name}`}>
      <b aria-hidden="true">{ROLE_LETTERS[name] ?? "?"}</b>
      {named("role.", name)}
    </span>
  );
}

export function roleLetter(role: string | null): string {
  return ROLE_LETTERS[roleOf(role)] ?? "?";
}

const TIER_SIGNS: Record<string, string> = { resident: "■", ssd: "▤", both: "◧" };

export function TierBadge({ tier }: { tier: string | null }) {
  if (tier === null) return <span class="tier none">{t("context.kept.none")}</span>;
  return (
    <span class={`tier ${tier}`}>
      <i aria-hidden="true">{TIER_SIGNS[tier]}</i>
      {named("cache.tier.", tier)}
    </span>
  );
}

export function Swatch({ kind, text }: { kind: string; text: Key }) {
  return (
    <span class="legend-item">
      <i class={`swatch ${kind}`} aria-hidden="true" />
      {t(text)}
    </span>
  );
}
