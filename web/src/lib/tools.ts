/** What a step did, in a verb and a target, and how its output is shown best. */
import type { Json } from './types'
import type { ToolStep } from './turns'

export type Family = 'run' | 'edit' | 'write' | 'read' | 'search' | 'list' | 'fetch' | 'delegate' | 'other'

interface Described {
  family: Family
  icon: string
  /** What was done; empty when only the tool's own name is known. */
  name: string
  target: string
}

const ICONS: Record<Family, string> = {
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
const FAMILIES: [RegExp, Family, string[]][] = [
  [/bash|shell|terminal|exec|run_?command|process/i, 'run', ['command', 'cmd', 'script', 'code']],
  [/edit|replace|patch|multiedit/i, 'edit', ['path', 'file_path', 'file', 'filename']],
  [/write|create_file/i, 'write', ['path', 'file_path', 'file', 'filename']],
  [/read|open_file|cat|view/i, 'read', ['path', 'file_path', 'file', 'filename', 'url']],
  [/grep|search|find|glob/i, 'search', ['pattern', 'query', 'q', 'path']],
  [/list|ls|dir/i, 'list', ['path', 'dir', 'directory']],
  [/fetch|http|browse|web/i, 'fetch', ['url', 'query']],
  [/task|agent|delegate/i, 'delegate', ['description', 'prompt', 'goal']],
]

export function describe(step: ToolStep): Described {
  const name = step.call?.name ?? step.result?.name ?? 'tool'
  const given = asObject(step.call?.arguments)
  for (const [pattern, family, names] of FAMILIES) {
    if (!pattern.test(name)) continue
    const target = names.map((each) => given[each]).find((each) => typeof each === 'string')
    if (typeof target === 'string') return { family, icon: ICONS[family], name: '', target: firstLine(target) }
  }
  const first = Object.values(given).find((each) => typeof each === 'string')
  return { family: 'other', icon: ICONS.other, name, target: typeof first === 'string' ? firstLine(first) : '' }
}

function asObject(given: Json | undefined): Record<string, Json> {
  if (typeof given === 'string') {
    try {
      return asObject(JSON.parse(given) as Json)
    } catch {
      return {}
    }
  }
  return given && typeof given === 'object' && !Array.isArray(given) ? given : {}
}

/** The output as one text; content blocks that are texts are joined. */
export function outputText(content: Json | undefined): string | null {
  if (typeof content === 'string') return content
  if (Array.isArray(content) && content.length && content.every(isTextBlock)) {
    return content.map((block) => String((block as { text: Json }).text)).join('\n')
  }
  return null
}

function isTextBlock(block: Json): boolean {
  return typeof block === 'object' && block !== null && !Array.isArray(block) && typeof block['text'] === 'string'
}

export interface Change {
  old: string
  new: string
  path: string
}

/** The change that an edit asked for, if its arguments say so. */
export function changeOf(step: ToolStep): Change | null {
  const given = asObject(step.call?.arguments)
  const old = given['old_string'] ?? given['old'] ?? given['old_text'] ?? given['search']
  const fresh = given['new_string'] ?? given['new'] ?? given['new_text'] ?? given['replace']
  if (typeof old !== 'string' || typeof fresh !== 'string') return null
  return { old, new: fresh, path: String(given['path'] ?? given['file_path'] ?? '') }
}

export function isUnifiedDiff(text: string): boolean {
  return /^(?:diff --git |--- .+\n\+\+\+ )/m.test(text) && /^@@ /m.test(text)
}

export interface Place {
  path: string
  line: string
  text: string
}

/** The lines of a search, when they name places as `path:12:text`; else nothing. */
export function places(text: string): Place[] | null {
  const lines = text.split('\n').filter((line) => line.trim())
  const found = lines.map((line) => /^([^\s:][^:]*):(\d+):(.*)$/.exec(line))
  if (!lines.length || found.some((each) => !each)) return null
  return found.map((each) => ({ path: each?.[1] ?? '', line: each?.[2] ?? '', text: each?.[3] ?? '' }))
}

/** Whether a file's text carries line numbers of its own. */
export function isNumbered(text: string): boolean {
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
