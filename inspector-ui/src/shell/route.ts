/** Which view is shown; it stands behind the `#`, so that a view can be linked to and the server needs no more paths. */
import { signal } from "@preact/signals";

export const TABS = ["panels", "prefix", "decode"] as const;
export type Tab = (typeof TABS)[number];
export const CORNERS = ["compose", "compare", "merges", "attention"] as const;
export type Corner = (typeof CORNERS)[number];

export type Route = { view: "requests" } | { view: "request"; id: string; tab: Tab } | { view: "cache" } | { view: "playground"; corner: Corner };

/** A link may come from anywhere: what is no id of a request never becomes part of an address that is asked. */
const ID = /^[\w-]+$/;

export function parseRoute(hash: string): Route {
  const [view, one, two] = hash.replace(/^#\/?/, "").split("/");
  if (view === "requests" && ID.test(one ?? "")) return { view: "request", id: one, tab: TABS.find((tab) => tab === two) ?? "panels" };
  if (view === "cache") return { view };
  if (view === "playground") return { view, corner: CORNERS.find((corner) => corner === one) ?? "compose" };
  return { view: "requests" };
}

export function address(route: Route): string {
  switch (route.view) {
    case "request":
      return `#/requests/${route.id}${route.tab === "panels" ? "" : `/${route.tab}`}`;
    case "playground":
      return `#/playground${route.corner === "compose" ? "" : `/${route.corner}`}`;
    default:
      return `#/${route.view}`;
  }
}

export const route = signal<Route>(parseRoute(location.hash));
addEventListener("hashchange", () => (route.value = parseRoute(location.hash)));

export function go(to: Route): void {
  location.hash = address(to);
}
