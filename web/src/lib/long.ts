/** Texts that are too long to be laid out, or read as Markdown, at once. */
import { firstWord } from './saying'

/** Characters up to which a text is shown as Markdown without being asked for. */
const LONGEST = 50_000
const EXCERPT = 2_000
const SLICE = 16_000

export function isLong(text: string): boolean {
  return text.length > LONGEST
}

export interface Excerpt {
  text: string
  /** Which part it is. */
  of: 'beginning' | 'end' | 'found'
}

/** A part that is shown in place of the whole: its end while it grows, else where the words are, else its beginning. */
export function excerpt(text: string, marks: readonly string[], isGrowing: boolean): Excerpt {
  if (isGrowing) return { text: text.slice(whole(text, text.length - EXCERPT)), of: 'end' }
  const found = firstWord(text, marks)
  if (found < EXCERPT) return { text: text.slice(0, whole(text, EXCERPT)), of: 'beginning' }
  const from = whole(text, found - EXCERPT / 2)
  return { text: text.slice(from, whole(text, from + EXCERPT)), of: 'found' }
}

/** The text in parts that are laid out one by one; a part ends with a line, where there are lines. */
export function slices(text: string): string[] {
  const parts: string[] = []
  for (let from = 0; from < text.length;) {
    const line = text.lastIndexOf('\n', from + SLICE) + 1
    const to = from + SLICE >= text.length ? text.length : line > from ? line : whole(text, from + SLICE)
    parts.push(text.slice(from, to))
    from = to
  }
  return parts
}

/** A place near this one that is not inside of a character. */
function whole(text: string, at: number): number {
  const code = text.charCodeAt(at)
  return code >= 0xdc00 && code <= 0xdfff ? at - 1 : at
}
