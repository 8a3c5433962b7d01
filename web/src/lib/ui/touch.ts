/** Swipe and long press on an element, by touch only: mouse and pen are ignored. */
import type { Attachment } from 'svelte/attachments'

const HOLD_MS = 500
const SWIPE_PX = 80
const STILL_PX = 10

interface TouchHandlers {
  onswipe: () => void
  onhold: (x: number, y: number) => void
}

export function touch(handlers: () => TouchHandlers): Attachment<HTMLElement> {
  return (node) => {
    let from: { x: number; y: number } | null = null
    let timer: ReturnType<typeof setTimeout> | undefined
    let wasUsed = false

    const move = (by: number) => (node.style.translate = by ? `${by}px 0` : '')
    const end = () => {
      clearTimeout(timer)
      from = null
      move(0)
    }
    const down = (event: PointerEvent) => {
      if (event.pointerType !== 'touch') return
      from = { x: event.clientX, y: event.clientY }
      wasUsed = false
      timer = setTimeout(() => {
        wasUsed = true
        if (from) handlers().onhold(from.x, from.y)
        end()
      }, HOLD_MS)
    }
    const drag = (event: PointerEvent) => {
      if (!from) return
      const by = event.clientX - from.x
      if (Math.hypot(by, event.clientY - from.y) > STILL_PX) clearTimeout(timer)
      if (Math.abs(by) > STILL_PX) move(by)
    }
    const up = (event: PointerEvent) => {
      if (!from) return
      const by = event.clientX - from.x
      if (Math.abs(by) > STILL_PX) wasUsed = true
      end()
      if (Math.abs(by) >= SWIPE_PX) handlers().onswipe()
    }
    // A swipe or a long press is not a click as well.
    const click = (event: MouseEvent) => {
      if (!wasUsed) return
      wasUsed = false
      event.preventDefault()
      event.stopPropagation()
    }
    node.addEventListener('pointerdown', down)
    node.addEventListener('pointermove', drag)
    node.addEventListener('pointerup', up)
    node.addEventListener('pointercancel', end)
    node.addEventListener('click', click, true)
    return () => {
      clearTimeout(timer)
      node.removeEventListener('pointerdown', down)
      node.removeEventListener('pointermove', drag)
      node.removeEventListener('pointerup', up)
      node.removeEventListener('pointercancel', end)
      node.removeEventListener('click', click, true)
    }
  }
}
