/** What a step did, in a verb and a target, and how its output is shown best. */
import type { Json } from './types'
import type { ToolStep } from './turns'

export type Viewer = 'terminal' | 'diff' | 'json' | 'file'

interface Described {
  verb: string
  target: string
}

const FAMILIES: [RegExp, string, string[]][] = [
  [/bash|shell|terminal|exec|run_?command|process/i, 'Ran', ['command', 'cmd', 'script', 'code']],
  [/edit|replace|patch|multiedit/i, 'Edited', ['path', 'file_path', 'file', 'filename']],
  [/write|create_file/i, 'Wrote', ['path', 'file_path', 'file', 'filename']],
  [/read|open_file|cat|view/i, 'Read', ['path', 'file_path', 'file', 'filename', 'url']],
  [/grep|search|find|glob/i, 'Searched', ['pattern', 'query', 'q', 'path']],
  [/list|ls|dir/i, 'Listed', ['path', 'dir', 'directory']],
  [/fetch|http|browse|web/i, 'Fetched', ['url', 'query']],
  [/task|agent|delegate/i, 'Delegated', ['description', 'prompt', 'goal']],
]

export function describe(step: ToolStep): Described {
  const name = step.call?.name ?? step.result?.name ?? 'tool'
  const given = asObject(step.call?.arguments)
  for (const [pattern, verb, names] of FAMILIES) {
    if (!pattern.test(name)) continue
    const target = names.map((each) => given[each]).find((each) => typeof each === 'string')
    if (typeof target === 'string') return { verb, target: firstLine(target) }
  }
  const first = Object.values(given).find((each) => typeof each === 'string')
  return { verb: name, target: typeof first === 'string' ? firstLine(first) : '' }
}

export function asObject(given: Json | undefined): Record<string, Json> {
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
