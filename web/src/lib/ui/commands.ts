/** All commands with their shortcuts. The palette, the help and the keyboard use this list. */
import { acceptsShortcut, isModalOpen } from './focus'
import type { MessageKey } from '../i18n.svelte'
import { preferences } from './preferences.svelte'

export interface Command {
  id: string
  label: MessageKey
  keys: string[]
  group: 'go' | 'session' | 'view'
  /** Its letter works only while a row or a message has the focus on purpose. */
  changesSession?: true
}

export const COMMANDS: Command[] = [
  { id: 'palette', label: 'cmd.palette', keys: ['mod+k'], group: 'go' },
  { id: 'filter', label: 'cmd.filter', keys: ['/'], group: 'go' },
  { id: 'new', label: 'cmd.new', keys: ['n'], group: 'go' },
  { id: 'next', label: 'cmd.next', keys: ['j'], group: 'go' },
  { id: 'previous', label: 'cmd.previous', keys: ['k'], group: 'go' },
  { id: 'go-search', label: 'nav.search', keys: ['g s'], group: 'go' },
  { id: 'go-live', label: 'nav.live', keys: ['g l'], group: 'go' },
  { id: 'go-questions', label: 'nav.questions', keys: ['g q'], group: 'go' },
  { id: 'go-usage', label: 'nav.usage', keys: ['g u'], group: 'go' },
  { id: 'go-import', label: 'nav.import', keys: ['g i'], group: 'go' },
  { id: 'go-settings', label: 'nav.settings', keys: ['g ,'], group: 'go' },
  { id: 'archive', label: 'cmd.archive', keys: ['e'], group: 'session', changesSession: true },
  { id: 'pin', label: 'cmd.pin', keys: ['p'], group: 'session', changesSession: true },
  { id: 'rename', label: 'cmd.rename', keys: ['r', 'f2'], group: 'session', changesSession: true },
  { id: 'move', label: 'cmd.move', keys: ['m'], group: 'session', changesSession: true },
  { id: 'label', label: 'cmd.label', keys: ['l'], group: 'session', changesSession: true },
  { id: 'select', label: 'cmd.select', keys: ['x'], group: 'session', changesSession: true },
  { id: 'select-range', label: 'cmd.selectRange', keys: ['shift+x'], group: 'session', changesSession: true },
  { id: 'trash', label: 'cmd.trash', keys: ['#', 'delete'], group: 'session', changesSession: true },
  { id: 'export', label: 'action.export', keys: [], group: 'session' },
  { id: 'fork', label: 'header.fork', keys: [], group: 'session' },
  { id: 'undo', label: 'cmd.undo', keys: ['z'], group: 'session' },
  { id: 'find', label: 'cmd.find', keys: ['mod+f'], group: 'view' },
  { id: 'find-next', label: 'find.next', keys: ['f3'], group: 'view' },
  { id: 'find-previous', label: 'find.previous', keys: ['shift+f3'], group: 'view' },
  { id: 'previous-prompt', label: 'cmd.previousPrompt', keys: ['['], group: 'view' },
  { id: 'next-prompt', label: 'cmd.nextPrompt', keys: [']'], group: 'view' },
  { id: 'question', label: 'cmd.question', keys: ['q'], group: 'view' },
  { id: 'fold', label: 'cmd.fold', keys: ['t'], group: 'view' },
  { id: 'list', label: 'cmd.list', keys: ['mod+b'], group: 'view' },
  { id: 'inspector', label: 'cmd.inspector', keys: ['i'], group: 'view' },
  { id: 'outline', label: 'cmd.outline', keys: ['o'], group: 'view' },
  { id: 'stop', label: 'cmd.stop', keys: ['mod+.'], group: 'view' },
  { id: 'help', label: 'cmd.help', keys: ['?'], group: 'view' },
]

type Handler = () => unknown
const handlers = new Map<string, Handler[]>()

/** Set the handler of a command; the last one registered runs. Returns a function that removes it. */
export function registerCommand(id: string, handler: Handler): () => void {
  const known = handlers.get(id) ?? []
  handlers.set(id, [...known, handler])
  return () =>
    handlers.set(
      id,
      (handlers.get(id) ?? []).filter((each) => each !== handler),
    )
}

export function registerCommands(commands: Record<string, Handler>): () => void {
  const unregister = Object.entries(commands).map(([id, handler]) => registerCommand(id, handler))
  return () => unregister.forEach((off) => off())
}

export function isCommandAvailable(id: string): boolean {
  return (handlers.get(id)?.length ?? 0) > 0
}

export function runCommand(id: string): boolean {
  const handler = handlers.get(id)?.at(-1)
  if (!handler) return false
  void handler()
  return true
}

let pendingKey = ''
let pendingAt = 0

export function handleShortcut(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing || isModalOpen()) return
  const inField = isField(event.target)
  const name = keyName(event)
  const sequence = pendingKey && event.timeStamp - pendingAt < 1200 ? `${pendingKey} ${name}` : name
  pendingKey = ''
  const isLetter = !name.startsWith('mod+') && !/^(?:shift\+)?f\d/.test(name)
  if (isLetter && (inField || !preferences.letters || !acceptsShortcut())) return
  const found =
    COMMANDS.find((each) => each.keys.includes(sequence)) ?? COMMANDS.find((each) => each.keys.includes(name))
  if (isLetter && found?.changesSession && !acceptsShortcut({ changesSession: true })) return
  if (!found && name === 'g') {
    pendingKey = name
    pendingAt = event.timeStamp
  }
  if (found && runCommand(found.id)) event.preventDefault()
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

/** A key as it is printed on keyboards. */
export function keyLabel(key: string): string {
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
