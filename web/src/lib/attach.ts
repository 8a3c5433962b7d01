/** Markdown on an element: only blocks that changed are made again. */
import type { Attachment } from 'svelte/attachments'
import { blocks, renderBlock } from './markdown'
import { wordPattern } from './saying'

const LONGEST_HIGHLIGHT = 200_000
const painted = new WeakMap<Element, { raw: string[]; marks: string }>()

export interface MarkdownWish {
  text: string
  labels: { copy: string; code: string; table: string }
  marks?: string[]
}

export function markdown(wish: () => MarkdownWish): Attachment<HTMLElement> {
  return (node) => {
    paint(node, wish())
  }
}

export function paint(node: HTMLElement, { text, labels, marks = [] }: MarkdownWish): void {
  const fresh = blocks(text)
  const before = painted.get(node)
  // Marks stand inside the blocks: other words need other blocks.
  const old = before?.marks === marks.join('\n') ? before.raw : []
  let same = 0
  while (same < old.length && same < fresh.length && old[same] === fresh[same]?.raw) same++
  while (node.childElementCount > same) node.lastElementChild?.remove()
  for (const token of fresh.slice(same)) {
    const block = document.createElement('div')
    block.className = 'md-block'
    block.append(renderBlock(token))
    dress(block, labels)
    node.append(block)
  }
  painted.set(node, { raw: fresh.map((token) => token.raw), marks: marks.join('\n') })
  if (marks.length) markWords(node, marks)
}

function dress(block: HTMLElement, labels: MarkdownWish['labels']): void {
  // A list, a table or a quotation is written from the side on which its own words begin.
  for (const part of block.querySelectorAll<HTMLElement>(':scope > :is(ul, ol, table, blockquote)')) part.dir ||= 'auto'
  for (const pre of block.querySelectorAll('pre')) {
    const code = pre.querySelector('code')
    if (!code) continue
    scrolls(pre, labels.code)
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
    if (found && (code.textContent ?? '').length < LONGEST_HIGHLIGHT) highlightLater(code, found)
  }
  for (const table of block.querySelectorAll('table')) {
    const frame = document.createElement('div')
    frame.className = 'table'
    scrolls(frame, labels.table)
    table.replaceWith(frame)
    frame.append(table)
  }
}

/** What may be wider than its place is reached, and scrolled, by key too. */
function scrolls(node: HTMLElement, label: string): void {
  node.tabIndex = 0
  node.setAttribute('role', 'group')
  node.setAttribute('aria-label', label)
}

export async function copyText(text: string, button?: HTMLElement): Promise<void> {
  await write(text)
  if (!button) return
  const before = button.textContent
  button.textContent = '✓'
  setTimeout(() => (button.textContent = before), 1200)
}

/** Only a page that came encrypted, or from this machine, has a clipboard; others use the old way. */
async function write(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text)
  const before = document.activeElement as HTMLElement | null
  const box = document.createElement('textarea')
  box.value = text
  box.className = 'vh'
  // Inside an open dialog nothing outside of it can be selected.
  ;(before?.closest('dialog') ?? document.body).append(box)
  box.select()
  document.execCommand('copy')
  box.remove()
  before?.focus({ preventScroll: true })
}

function highlightLater(code: Element, name: string): void {
  const idle = window.requestIdleCallback ?? ((act: () => void) => setTimeout(act, 50))
  idle(() => void import('./highlight').then(({ highlight }) => highlight(code, name)))
}

/** Mark found words in the finished text, without touching its structure. */
export function markWords(node: HTMLElement, words: string[]): void {
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
