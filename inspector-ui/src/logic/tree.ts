/** A tree as the rows that are open. */
import type { CacheNode } from "../api/contract.ts";

export interface TreeRow {
  node: CacheNode;
  depth: number;
  /** Index of the row of its parent; -1: a root. */
  parent: number;
  /** Place among its siblings, and how many they are. */
  place: number;
  siblings: number;
}

export function openRows(roots: readonly CacheNode[], isClosed: (key: string) => boolean): TreeRow[] {
  const rows: TreeRow[] = [];
  const add = (nodes: readonly CacheNode[], depth: number, parent: number) => {
    nodes.forEach((node, place) => {
      rows.push({ node, depth, parent, place, siblings: nodes.length });
      if (node.children.length && !isClosed(node.key)) add(node.children, depth + 1, rows.length - 1);
    });
  };
  add(roots, 0, -1);
  return rows;
}
