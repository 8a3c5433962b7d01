/** Describes tool calls in a verb and a target, and recognizes the format of their output. */
import type { Json } from '../api/types'
import type { ToolStep } from './exchanges'

export type ToolKind = 'run' | 'edit' | 'write' | 'read' | 'search' | 'list' | 'fetch' | 'delegate' | 'other'

interface ToolSummary {
  toolKind: ToolKind
  icon: string
  /** The tool's name if its kind is unknown, else empty. */
  name: string
  target: string
}

const ICONS: Record<ToolKind, string> = {
  run: 'terminal',
  edit: 'file-pen',
  write: 'file-pen',
  read: 'file-text',
  search: 'search',
  list: 'files',
  fetch: 'globe',
  delegate: 'bot',
  other: 'wrench',
}
const TOOL_KINDS: [RegExp, ToolKind, string[]][] = [
  [/bash|shell|terminal|exec|run_?command|process/i, 'run', ['command', 'cmd', 'script', 'code']],
  [/edit|replace|patch|multiedit/i, 'edit', ['path', 'file_path', 'file', 'filename']],
  [/write|create_file/i, 'write', ['path', 'file_path', 'file', 'filename']],
  [/read|open_file|cat|view/i, 'read', ['path', 'file_path', 'file', 'filename', 'url']],
  [/grep|search|find|glob/i, 'search', ['pattern', 'query', 'q', 'path']],
  [/list|ls|dir/i, 'list', ['path', 'dir', 'directory']],
  [/fetch|http|browse|web/i, 'fetch', ['url', 'query']],
  [/task|agent|delegate/i, 'delegate', ['description', 'prompt', 'goal']],
]

export function describeStep(step: ToolStep): ToolSummary {
  const name = step.call?.name ?? step.result?.name ?? 'tool'
  const args = asObject(step.call?.arguments)
  for (const [pattern, toolKind, names] of TOOL_KINDS) {
    if (!pattern.test(name)) continue
    const target = names.map((each) => args[each]).find((each) => typeof each === 'string')
    if (typeof target === 'string') return { toolKind, icon: ICONS[toolKind], name: '', target: firstLine(target) }
  }
  const first = Object.values(args).find((each) => typeof each === 'string')
  return { toolKind: 'other', icon: ICONS.other, name, target: typeof first === 'string' ? firstLine(first) : '' }
}

function asObject(args: unknown): Record<string, Json> {
  if (typeof args === 'string') {
    try {
      return asObject(JSON.parse(args) as Json)
    } catch {
      return {}
    }
  }
  return args && typeof args === 'object' && !Array.isArray(args) ? (args as Record<string, Json>) : {}
}

/** The output as one text, or null if it is not text. Text blocks are joined. */
export function outputText(content: unknown): string | null {
  if (typeof content === 'string') return content
  if (Array.isArray(content) && content.length && content.every(isTextBlock)) {
    return content.map((block) => String((block as { text: Json }).text)).join('\n')
  }
  return null
}

function isTextBlock(block: Json): boolean {
  return typeof block === 'object' && block !== null && !Array.isArray(block) && typeof block['text'] === 'string'
}

export interface Edit {
  old: string
  new: string
  path: string
}

/** The edit that the arguments of a tool call describe. */
export function editOf(step: ToolStep): Edit | null {
  const args = asObject(step.call?.arguments)
  const old = args['old_string'] ?? args['old'] ?? args['old_text'] ?? args['search']
  const replacement = args['new_string'] ?? args['new'] ?? args['new_text'] ?? args['replace']
  if (typeof old !== 'string' || typeof replacement !== 'string') return null
  return { old, new: replacement, path: String(args['path'] ?? args['file_path'] ?? '') }
}

export function isUnifiedDiff(text: string): boolean {
  return /^(?:diff --git |--- .+\n\+\+\+ )/m.test(text) && /^@@ /m.test(text)
}

export interface SearchMatch {
  path: string
  line: string
  text: string
}

/** The matches of a search if every line has the form `path:12:text`. */
export function parseMatches(text: string): SearchMatch[] | null {
  const lines = text.split('\n').filter((line) => line.trim())
  const found = lines.map((line) => /^([^\s:][^:]*):(\d+):(.*)$/.exec(line))
  if (!lines.length || found.some((each) => !each)) return null
  return found.map((each) => ({ path: each?.[1] ?? '', line: each?.[2] ?? '', text: each?.[3] ?? '' }))
}

/** Whether the text already has line numbers. */
export function hasLineNumbers(text: string): boolean {
  const lines = text
    .split('\n')
    .filter((line) => line.trim())
    .slice(0, 5)
  return lines.length > 0 && lines.every((line) => /^\s*\d+[\t→|:]/.test(line))
}

export function parsedJson(text: string): Json | undefined {
  const trimmed = text.trim()
  if (!/^[[{]/.test(trimmed) || trimmed.length > 500_000) return undefined
  try {
    return JSON.parse(trimmed) as Json
  } catch {
    return undefined
  }
}

function firstLine(text: string): string {
  const line = text.split('\n', 1)[0] ?? ''
  return line.length > 120 ? `${line.slice(0, 119)}…` : line
}
