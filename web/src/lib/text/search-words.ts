/** A pattern that matches any of the words, ignoring case; null if no word is long enough. */
export function wordPattern(words: readonly string[]): RegExp | null {
  const escaped = words.filter((word) => word.length > 1).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
  return escaped.length ? new RegExp(escaped.join('|'), 'giu') : null
}

/** The index of the first match of any word, or -1. */
export function indexOfWord(text: string, words: readonly string[]): number {
  return wordPattern(words)?.exec(text)?.index ?? -1
}

/** Split a text at the words: every second part is a match. */
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

/** The words of a query to highlight, without operators and filters. */
export function queryWords(query: string | null): string[] {
  if (!query) return []
  return (query.match(/"[^"]+"|\S+/g) ?? [])
    .filter((word) => !/^-|^\w+:\S|^(?:AND|OR|NOT)$/.test(word))
    .map((word) => word.replace(/["*()]/g, ''))
    .filter(Boolean)
}
