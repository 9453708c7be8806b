/**
 * What is hovered and what is pinned, on the token axis that all panels share. Any element with `data-a` and `data-b` stands for the tokens
 * [a, b); whatever overlaps the lit span is lit, in every panel. Lighting up toggles classes of the elements that are drawn: nothing
 * is laid out anew when the pointer moves.
 */
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { batch, computed, effect, signal } from "@preact/signals";
import type { Span } from "../api/contract.ts";

export interface Link {
  tokens: Span;
  /** The panel in which it was hovered or pinned: that one does not scroll. */
  from: string;
}

interface Panel {
  name: string;
  root: HTMLElement;
  reveal: (tokens: Span) => void;
}

/** A pointer that rests this long scrolls the other panels to the counterpart. */
const REST_MS = 140;

export class Linking {
  readonly hovered = signal<Link | null>(null);
  readonly pinned = signal<Link | null>(null);
  readonly lit = computed(() => this.hovered.value ?? this.pinned.value);
  /** Whether the other panels scroll along. */
  readonly follows = signal(true);
  private readonly panels = new Set<Panel>();
  /** The panel that was asked for before it was there, and what had the focus then. */
  private awaited: { name: string; from: Element | null } | null = null;
  /** Panels with something lit: the others need no look while nothing is. */
  private readonly painted = new WeakSet<HTMLElement>();
  private frame = 0;
  private rest = 0;

  /** Begins to light up; returns how to end it. */
  start(): () => void {
    const stopPaint = effect(() => {
      this.lit.value;
      this.pinned.value;
      cancelAnimationFrame(this.frame);
      this.frame = requestAnimationFrame(() => this.panels.forEach(({ root }) => this.paint(root)));
    });
    const stopFollow = effect(() => {
      const link = this.lit.value;
      clearTimeout(this.rest);
      if (!link || !this.follows.value) return;
      this.rest = window.setTimeout(() => this.revealAll(link), link === this.pinned.peek() ? 0 : REST_MS);
    });
    return () => {
      stopPaint();
      stopFollow();
      clearTimeout(this.rest);
    };
  }

  /** Makes `root` a panel: its elements are hovered, focused, clicked; `reveal` scrolls to tokens. */
  add(name: string, root: HTMLElement, reveal: (tokens: Span) => void): () => void {
    const panel = { name, root, reveal };
    this.panels.add(panel);
    if (this.awaited?.name === name && this.awaited.from === document.activeElement) this.focus(name);
    const over = (event: Event) => {
      const tokens = tokensOf(event.target);
      this.hovered.value = tokens && { tokens, from: name };
    };
    const leave = () => (this.hovered.value = null);
    const click = (event: Event) => {
      if ((event.target as Element).closest("button, a, input, select")) return;
      const tokens = tokensOf(event.target);
      if (tokens) this.pin({ tokens, from: name });
    };
    root.addEventListener("pointerover", over);
    root.addEventListener("pointerleave", leave);
    root.addEventListener("focusin", over);
    root.addEventListener("focusout", leave);
    root.addEventListener("click", click);
    return () => {
      this.panels.delete(panel);
      root.removeEventListener("pointerover", over);
      root.removeEventListener("pointerleave", leave);
      root.removeEventListener("focusin", over);
      root.removeEventListener("focusout", leave);
      root.removeEventListener("click", click);
    };
  }

  get awaitedPanel(): string | null {
    return this.awaited?.name ?? null;
  }

  /** Gives a panel the focus; one that is not there yet has it when it comes, unless a person went elsewhere meanwhile. */
  focus(name: string): void {
    const panel = [...this.panels].find(({ name: other, root }) => other === name && root.tabIndex >= 0);
    this.awaited = panel ? null : { name, from: document.activeElement };
    if (panel) requestAnimationFrame(() => panel.root.focus()); // a narrow page shows it first
  }

  /** Pins; what is pinned already is let go. */
  pin(link: Link): void {
    const before = this.pinned.value;
    const isSame = before && before.tokens[0] === link.tokens[0] && before.tokens[1] === link.tokens[1];
    batch(() => {
      this.hovered.value = null;
      this.pinned.value = isSame ? null : link;
    });
  }

  unpin(): void {
    batch(() => {
      this.hovered.value = null;
      this.pinned.value = null;
    });
  }

  /** `lit`: inside the lit span; `holds`: a larger thing that holds some of it. */
  paint(root: HTMLElement): void {
    const lit = this.lit.peek()?.tokens;
    const pinned = this.pinned.peek()?.tokens;
    if (!lit && !this.painted.has(root)) return;
    if (lit) this.painted.add(root);
    else this.painted.delete(root);
    for (const element of root.querySelectorAll<HTMLElement>("[data-a]")) {
      const start = Number(element.dataset.a);
      const end = Number(element.dataset.b);
      const isTouched = lit !== undefined && start < lit[1] && lit[0] < end;
      const isInside = isTouched && start >= lit[0] && end <= lit[1];
      element.classList.toggle("lit", isInside);
      element.classList.toggle("holds", isTouched && !isInside);
      element.classList.toggle("pinned", pinned !== undefined && start >= pinned[0] && end <= pinned[1]);
    }
  }

  private revealAll(link: Link): void {
    for (const panel of this.panels) if (panel.name !== link.from) panel.reveal(link.tokens);
  }
}

function tokensOf(target: EventTarget | null): Span | null {
  const element = target instanceof Element ? target.closest<HTMLElement>("[data-a]") : null;
  return element && [Number(element.dataset.a), Number(element.dataset.b)];
}

export const LinkingContext = createContext<Linking>(null as unknown as Linking);

export function useLinking(): Linking {
  return useContext(LinkingContext);
}
