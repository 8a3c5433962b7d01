/** A finger on a row: swiped aside, or held. Mouse and pen do not come here. */
import type { Attachment } from 'svelte/attachments'

const HELD_MS = 500
const SWIPED = 80
const STILL = 10

interface Wishes {
  onswipe: () => void
  onhold: (x: number, y: number) => void
}

export function touch(wishes: () => Wishes): Attachment<HTMLElement> {
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
        if (from) wishes().onhold(from.x, from.y)
        end()
      }, HELD_MS)
    }
    const drag = (event: PointerEvent) => {
      if (!from) return
      const by = event.clientX - from.x
      if (Math.hypot(by, event.clientY - from.y) > STILL) clearTimeout(timer)
      if (Math.abs(by) > STILL) move(by)
    }
    const up = (event: PointerEvent) => {
      if (!from) return
      const by = event.clientX - from.x
      if (Math.abs(by) > STILL) wasUsed = true
      end()
      if (Math.abs(by) >= SWIPED) wishes().onswipe()
    }
    // What was swiped or held is not clicked as well.
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
