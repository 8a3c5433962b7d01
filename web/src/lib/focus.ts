/** Where the keyboard focus is, how it came there, and where it goes when its element disappears. */
import type { Attachment } from 'svelte/attachments'

/** How the focus came to the element that has it: a pointer pressed it, the page chose it, or else a person did by key. */
type Origin = 'person' | 'pointer' | 'page'
let origin: Origin = 'person'
let isPressed = false
let isGiven = false
let byKey = false

addEventListener(
  'pointerdown',
  () => {
    isPressed = true
    byKey = false
  },
  true,
)
for (const name of ['pointerup', 'pointercancel', 'click'] as const)
  addEventListener(name, () => (isPressed = false), true)
addEventListener('focusin', () => (origin = isGiven ? 'page' : isPressed ? 'pointer' : 'person'), true)
addEventListener(
  'keydown',
  (event) => {
    byKey = true
    // Tab, arrows, Page Down: who uses these means what has the focus. A character may be meant for the composer.
    if ([...event.key].length > 1 && !/^(?:Shift|Control|Alt|Meta|Dead|Process|CapsLock)$/.test(event.key))
      origin = 'person'
  },
  true,
)

const fallbacks: HTMLElement[] = []

/** The element takes the focus when the one that had it is gone; the latest that is attached wins. */
export const takesLostFocus: Attachment<HTMLElement> = (node) => {
  fallbacks.push(node)
  return () => void fallbacks.splice(fallbacks.indexOf(node), 1)
}

let isWaiting = false

/** Give a lost focus to the latest fallback, or to the page; a page whose code is still loading is waited for. */
export function keepFocus(): void {
  if (isWaiting) return
  isWaiting = true
  requestAnimationFrame(() => {
    isWaiting = false
    const now = document.activeElement
    if ((now && now !== document.body) || document.querySelector('dialog[open]')) return
    const next = fallbacks.at(-1) ?? document.querySelector<HTMLElement>('main')
    if (!next) {
      keepFocus()
      return
    }
    if (!next.hasAttribute('tabindex')) next.tabIndex = -1
    if (!byKey) hideRing(next)
    // On a page without a composer a letter can only be a shortcut.
    isGiven = fallbacks.includes(next)
    next.focus({ preventScroll: true })
    isGiven = false
  })
}

/** Remember what has the focus, and how it came there; the result gives it back. */
export function rememberFocus(): () => void {
  const before = document.activeElement as HTMLElement | null
  const was = origin
  return () => {
    if (before?.isConnected) before.focus()
    if (document.activeElement === before) origin = was
  }
}

/** Whether a letter that is typed now is a shortcut. One that changes a session needs more: a row or a
 * message that has the focus on purpose, marked by `data-letters` (`keyboard`: a click there is not enough). */
export function takesLetters({ changes = false } = {}): boolean {
  if (origin === 'page') return false
  if (!changes) return true
  const place = document.activeElement?.closest<HTMLElement>('[data-letters]')?.dataset['letters']
  return place !== undefined && (place !== 'keyboard' || origin === 'person')
}

/** Nobody pressed a key yet: the focus is there, and shown when one is pressed. */
function hideRing(node: HTMLElement): void {
  node.dataset['arrived'] = ''
  addEventListener('keydown', () => delete node.dataset['arrived'], { capture: true, once: true })
}
