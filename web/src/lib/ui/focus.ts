/** Where the keyboard focus is, how it got there, and where it goes when its element is removed. */
import type { Attachment } from 'svelte/attachments'

/** Who moved the focus to its element: a person by key, a pointer, or the page itself. */
type Origin = 'keyboard' | 'pointer' | 'page'
let origin: Origin = 'keyboard'
let isPointerDown = false
let isMovedByPage = false
let wasKeyLastUsed = false

addEventListener(
  'pointerdown',
  () => {
    isPointerDown = true
    wasKeyLastUsed = false
  },
  true,
)
for (const name of ['pointerup', 'pointercancel', 'click'] as const)
  addEventListener(name, () => (isPointerDown = false), true)
addEventListener('focusin', () => (origin = isMovedByPage ? 'page' : isPointerDown ? 'pointer' : 'keyboard'), true)
addEventListener(
  'keydown',
  (event) => {
    wasKeyLastUsed = true
    // Tab, arrows and the like are meant for the focused element. A character may be meant for the composer.
    if ([...event.key].length > 1 && !/^(?:Shift|Control|Alt|Meta|Dead|Process|CapsLock)$/.test(event.key))
      origin = 'keyboard'
  },
  true,
)

const fallbacks: HTMLElement[] = []
const pages: HTMLElement[] = []

/** Makes the element take the focus when the focused element is removed; the one attached last wins. */
export const focusFallback: Attachment<HTMLElement> = (node) => register(fallbacks, node)

/** The main element of a page, which takes a lost focus if there is no other fallback. */
export const pageElement: Attachment<HTMLElement> = (node) => register(pages, node)

function register(nodes: HTMLElement[], node: HTMLElement): () => void {
  nodes.push(node)
  return () => void nodes.splice(nodes.indexOf(node), 1)
}

let openModals = 0

/** Whether a modal dialog is open. */
export function isModalOpen(): boolean {
  return openModals > 0
}

/** Call this before a modal dialog opens. The result, called when it closes, gives the focus back. */
export function modalOpens(): () => void {
  openModals += 1
  const focused = document.activeElement as HTMLElement | null
  const originBefore = origin
  return () => {
    openModals -= 1
    if (focused?.isConnected) focused.focus()
    if (document.activeElement === focused) origin = originBefore
    restoreLostFocus()
  }
}

let isScheduled = false

/** Give a lost focus to the latest fallback or to the page. Waits for a page that is still loading. */
export function restoreLostFocus(): void {
  if (isScheduled) return
  isScheduled = true
  requestAnimationFrame(() => {
    isScheduled = false
    const focused = document.activeElement
    if ((focused && focused !== document.body) || isModalOpen()) return
    const next = fallbacks.at(-1) ?? pages.at(-1)
    if (!next) {
      restoreLostFocus()
      return
    }
    if (!next.hasAttribute('tabindex')) next.tabIndex = -1
    if (!wasKeyLastUsed) hideFocusRing(next)
    // On a page without a composer a letter can only be a shortcut.
    isMovedByPage = fallbacks.includes(next)
    next.focus({ preventScroll: true })
    isMovedByPage = false
  })
}

/** Elements in which letters change sessions, and whether focusing them by a click is enough. */
const shortcutAreas = new WeakMap<Element, 'any-focus' | 'keyboard-focus'>()

/** Lets letters that change a session work while the focus is inside this element. */
export function sessionShortcuts(needs: 'any-focus' | 'keyboard-focus'): Attachment<HTMLElement> {
  return (node) => void shortcutAreas.set(node, needs)
}

/** Whether a letter that is typed now is a shortcut. One that changes a session works only in shortcut areas. */
export function acceptsShortcut({ changesSession = false } = {}): boolean {
  if (origin === 'page') return false
  if (!changesSession) return true
  for (let node = document.activeElement; node; node = node.parentElement) {
    const needs = shortcutAreas.get(node)
    if (needs) return needs === 'any-focus' || origin === 'keyboard'
  }
  return false
}

/** Hide the focus ring until a key is pressed: nobody uses the keyboard yet. */
function hideFocusRing(node: HTMLElement): void {
  node.dataset['hideFocusRing'] = ''
  addEventListener('keydown', () => delete node.dataset['hideFocusRing'], { capture: true, once: true })
}
