/** Everything that can be done by key, by its name: the palette, the help and the keyboard share it. */
import { takesLetters } from './focus'
import type { Key } from './i18n.svelte'
import { prefs } from './prefs.svelte'

export interface Command {
  id: string
  label: Key
  keys: string[]
  group: 'go' | 'session' | 'view'
  /** Changes a session: its letter acts only where a row or a message has the focus on purpose. */
  changes?: true
}

export const COMMANDS: Command[] = [
  { id: 'palette', label: 'cmd.palette', keys: ['mod+k'], group: 'go' },
  { id: 'filter', label: 'cmd.filter', keys: ['/'], group: 'go' },
  { id: 'new', label: 'cmd.new', keys: ['n'], group: 'go' },
  { id: 'next', label: 'cmd.next', keys: ['j'], group: 'go' },
  { id: 'previous', label: 'cmd.previous', keys: ['k'], group: 'go' },
  { id: 'go-search', label: 'nav.search', keys: ['g s'], group: 'go' },
  { id: 'go-live', label: 'nav.live', keys: ['g l'], group: 'go' },
  { id: 'go-usage', label: 'nav.usage', keys: ['g u'], group: 'go' },
  { id: 'go-import', label: 'nav.import', keys: ['g i'], group: 'go' },
  { id: 'go-settings', label: 'nav.settings', keys: ['g ,'], group: 'go' },
  { id: 'archive', label: 'cmd.archive', keys: ['e'], group: 'session', changes: true },
  { id: 'pin', label: 'cmd.pin', keys: ['p'], group: 'session', changes: true },
  { id: 'rename', label: 'cmd.rename', keys: ['r', 'f2'], group: 'session', changes: true },
  { id: 'move', label: 'cmd.move', keys: ['m'], group: 'session', changes: true },
  { id: 'label', label: 'cmd.label', keys: ['l'], group: 'session', changes: true },
  { id: 'select', label: 'cmd.select', keys: ['x'], group: 'session', changes: true },
  { id: 'select-range', label: 'cmd.selectRange', keys: ['shift+x'], group: 'session', changes: true },
  { id: 'trash', label: 'cmd.trash', keys: ['#', 'delete'], group: 'session', changes: true },
  { id: 'export', label: 'action.export', keys: [], group: 'session' },
  { id: 'fork', label: 'head.fork', keys: [], group: 'session' },
  { id: 'undo', label: 'cmd.undo', keys: ['z'], group: 'session' },
  { id: 'find', label: 'cmd.find', keys: ['mod+f'], group: 'view' },
  { id: 'find-next', label: 'find.next', keys: ['f3'], group: 'view' },
  { id: 'find-previous', label: 'find.previous', keys: ['shift+f3'], group: 'view' },
  { id: 'previous-prompt', label: 'cmd.previousPrompt', keys: ['['], group: 'view' },
  { id: 'next-prompt', label: 'cmd.nextPrompt', keys: [']'], group: 'view' },
  { id: 'fold', label: 'cmd.fold', keys: ['t'], group: 'view' },
  { id: 'list', label: 'cmd.list', keys: ['mod+b'], group: 'view' },
  { id: 'inspector', label: 'cmd.inspector', keys: ['i'], group: 'view' },
  { id: 'outline', label: 'cmd.outline', keys: ['o'], group: 'view' },
  { id: 'stop', label: 'cmd.stop', keys: ['mod+.'], group: 'view' },
  { id: 'help', label: 'cmd.help', keys: ['?'], group: 'view' },
]

type Act = () => unknown
const handlers = new Map<string, Act[]>()

/** Say how a command is done here; the latest to say so does it. Gives the way to take it back. */
export function provide(id: string, act: Act): () => void {
  const known = handlers.get(id) ?? []
  handlers.set(id, [...known, act])
  return () =>
    handlers.set(
      id,
      (handlers.get(id) ?? []).filter((each) => each !== act),
    )
}

export function provideAll(acts: Record<string, Act>): () => void {
  const ends = Object.entries(acts).map(([id, act]) => provide(id, act))
  return () => ends.forEach((end) => end())
}

export function can(id: string): boolean {
  return (handlers.get(id)?.length ?? 0) > 0
}

export function run(id: string): boolean {
  const act = handlers.get(id)?.at(-1)
  if (!act) return false
  void act()
  return true
}

let first = ''
let firstAt = 0

export function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing || document.querySelector('dialog[open]')) return
  const inField = isField(event.target)
  const name = keyName(event)
  const sequence = first && event.timeStamp - firstAt < 1200 ? `${first} ${name}` : name
  first = ''
  const isLetter = !name.startsWith('mod+') && !/^(?:shift\+)?f\d/.test(name)
  if (isLetter && (inField || !prefs.letters || !takesLetters())) return
  const found =
    COMMANDS.find((each) => each.keys.includes(sequence)) ?? COMMANDS.find((each) => each.keys.includes(name))
  if (isLetter && found?.changes && !takesLetters(found)) return
  if (!found && name === 'g') {
    first = name
    firstAt = event.timeStamp
  }
  if (found && run(found.id)) event.preventDefault()
}

function keyName(event: KeyboardEvent): string {
  const key = event.key.toLowerCase()
  if (event.metaKey || event.ctrlKey) return `mod+${key}`
  return event.shiftKey && /^(?:f\d+|[a-z])$/.test(key) ? `shift+${key}` : key
}

function isField(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement && (target.isContentEditable || /^(?:input|textarea|select)$/i.test(target.tagName))
  )
}

const IS_MAC = /mac|iphone|ipad/i.test(navigator.platform)

/** A key as it stands on keyboards. */
export function shown(key: string): string {
  const named = (each: string) => (each === 'delete' ? 'Del' : each.toUpperCase())
  return key
    .split(' ')
    .map((each) =>
      each
        .replace(/[^+]+$|^\+$/, named)
        .replace('mod+', IS_MAC ? '⌘' : 'Ctrl ')
        .replace('shift+', '⇧'),
    )
    .join(' ')
}
