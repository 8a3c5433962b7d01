/** Words of a query that are worth marking: no operators, no filters. */
export function queryWords(query: string | null): string[] {
  if (!query) return []
  return (query.match(/"[^"]+"|\S+/g) ?? [])
    .filter((word) => !/^-|^\w+:\S|^(?:AND|OR|NOT)$/.test(word))
    .map((word) => word.replace(/["*()]/g, ''))
    .filter(Boolean)
}
