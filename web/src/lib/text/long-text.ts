/** Texts that are too long to render, or to parse as Markdown, at once. */
import { indexOfWord } from './search-words'

/** Longer texts, in characters, are not rendered as Markdown. */
const MAX_MARKDOWN = 50_000
const EXCERPT_LENGTH = 2_000
const PART_LENGTH = 16_000

export function isLongText(text: string): boolean {
  return text.length > MAX_MARKDOWN
}

export interface Excerpt {
  text: string
  /** Which part of the text it is. */
  of: 'beginning' | 'end' | 'found'
}

/** An excerpt: the end while the text is streaming, else around the first match, else the beginning. */
export function excerpt(text: string, highlights: readonly string[], isStreaming: boolean): Excerpt {
  if (isStreaming) return { text: text.slice(characterBoundary(text, text.length - EXCERPT_LENGTH)), of: 'end' }
  const found = indexOfWord(text, highlights)
  if (found < EXCERPT_LENGTH) return { text: text.slice(0, characterBoundary(text, EXCERPT_LENGTH)), of: 'beginning' }
  const from = characterBoundary(text, found - EXCERPT_LENGTH / 2)
  return { text: text.slice(from, characterBoundary(text, from + EXCERPT_LENGTH)), of: 'found' }
}

/** Split a text into parts that are rendered one by one, at line ends if possible. */
export function splitText(text: string): string[] {
  const parts: string[] = []
  for (let from = 0; from < text.length;) {
    const line = text.lastIndexOf('\n', from + PART_LENGTH) + 1
    const to =
      from + PART_LENGTH >= text.length ? text.length : line > from ? line : characterBoundary(text, from + PART_LENGTH)
    parts.push(text.slice(from, to))
    from = to
  }
  return parts
}

/** The nearest index that does not split a surrogate pair. */
function characterBoundary(text: string, at: number): number {
  const code = text.charCodeAt(at)
  return code >= 0xdc00 && code <= 0xdfff ? at - 1 : at
}
