/** Renders Markdown into an element; only changed blocks are rendered again. */
import type { Attachment } from 'svelte/attachments'
import { copyText } from './clipboard'
import { blocks, renderBlock } from './markdown'
import { wordPattern } from './search-words'

const LONGEST_HIGHLIGHT = 200_000
const rendered = new WeakMap<Element, { raw: string[]; highlights: string }>()

export interface MarkdownOptions {
  text: string
  labels: { copy: string; code: string; table: string }
  highlights?: string[]
}

export function markdown(options: () => MarkdownOptions): Attachment<HTMLElement> {
  return (node) => {
    renderMarkdown(node, options())
  }
}

export function renderMarkdown(node: HTMLElement, { text, labels, highlights = [] }: MarkdownOptions): void {
  const tokens = blocks(text)
  const before = rendered.get(node)
  // Highlights are inside the blocks, so other words need new blocks.
  const old = before?.highlights === highlights.join('\n') ? before.raw : []
  let unchanged = 0
  while (unchanged < old.length && unchanged < tokens.length && old[unchanged] === tokens[unchanged]?.raw) unchanged++
  while (node.childElementCount > unchanged) node.lastElementChild?.remove()
  for (const token of tokens.slice(unchanged)) {
    const block = document.createElement('div')
    block.className = 'markdown-block'
    block.append(renderBlock(token))
    decorateBlock(block, labels)
    node.append(block)
  }
  rendered.set(node, { raw: tokens.map((token) => token.raw), highlights: highlights.join('\n') })
  if (highlights.length) highlightWords(node, highlights)
}

function decorateBlock(block: HTMLElement, labels: MarkdownOptions['labels']): void {
  // Lists, tables and quotes follow the direction of their own text.
  for (const part of block.querySelectorAll<HTMLElement>(':scope > :is(ul, ol, table, blockquote)')) part.dir ||= 'auto'
  for (const pre of block.querySelectorAll('pre')) {
    const code = pre.querySelector('code')
    if (!code) continue
    makeScrollable(pre, labels.code)
    const frame = document.createElement('div')
    frame.className = 'code'
    const bar = document.createElement('div')
    bar.className = 'code-bar'
    const name = document.createElement('span')
    const found = /language-(\S+)/.exec(code.className)?.[1] ?? ''
    name.textContent = found
    const copy = document.createElement('button')
    copy.type = 'button'
    copy.textContent = labels.copy
    copy.addEventListener('click', () => void copyText(code.textContent ?? '', copy))
    bar.append(name, copy)
    pre.replaceWith(frame)
    frame.append(bar, pre)
    if (found && (code.textContent ?? '').length < LONGEST_HIGHLIGHT) highlightWhenIdle(code, found)
  }
  for (const table of block.querySelectorAll('table')) {
    const frame = document.createElement('div')
    frame.className = 'table'
    makeScrollable(frame, labels.table)
    table.replaceWith(frame)
    frame.append(table)
  }
}

/** Make an element that may overflow reachable, and scrollable, by keyboard. */
function makeScrollable(node: HTMLElement, label: string): void {
  node.tabIndex = 0
  node.setAttribute('role', 'group')
  node.setAttribute('aria-label', label)
}

function highlightWhenIdle(code: Element, name: string): void {
  const idle = window.requestIdleCallback ?? ((act: () => void) => setTimeout(act, 50))
  idle(() => void import('./syntax-highlight').then(({ highlight }) => highlight(code, name)))
}

/** Highlight words in rendered text without changing its structure. */
export function highlightWords(node: HTMLElement, words: string[]): void {
  const pattern = wordPattern(words)
  if (!pattern) return
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT)
  const texts: Text[] = []
  while (walker.nextNode()) texts.push(walker.currentNode as Text)
  for (const text of texts) {
    if (text.parentElement?.closest('mark')) continue
    for (const found of [...text.data.matchAll(pattern)].reverse()) {
      const range = document.createRange()
      range.setStart(text, found.index)
      range.setEnd(text, found.index + found[0].length)
      range.surroundContents(document.createElement('mark'))
    }
  }
}
