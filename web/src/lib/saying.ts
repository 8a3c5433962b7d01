/** Finds these words, in whatever case; null when there is none worth finding. */
export function wordPattern(words: readonly string[]): RegExp | null {
  const wanted = words.filter((word) => word.length > 1).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
  return wanted.length ? new RegExp(wanted.join('|'), 'giu') : null
}

/** Where the first of these words stands, or -1. */
export function firstWord(text: string, words: readonly string[]): number {
  return wordPattern(words)?.exec(text)?.index ?? -1
}

/** A text in pieces: every second one is one of the words. */
export function splitAtWords(text: string, words: readonly string[]): string[] {
  const pattern = wordPattern(words)
  if (!pattern) return [text]
  const pieces: string[] = []
  let end = 0
  for (const found of text.matchAll(pattern)) {
    pieces.push(text.slice(end, found.index), found[0])
    end = found.index + found[0].length
  }
  return [...pieces, text.slice(end)]
}

/** Words of a query that are worth marking: no operators, no filters. */
export function queryWords(query: string | null): string[] {
  if (!query) return []
  return (query.match(/"[^"]+"|\S+/g) ?? [])
    .filter((word) => !/^-|^\w+:\S|^(?:AND|OR|NOT)$/.test(word))
    .map((word) => word.replace(/["*()]/g, ''))
    .filter(Boolean)
}
