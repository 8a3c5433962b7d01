/** From entries to what a reader sees: rounds of a question, its work, its answer, and dividers. */
import type { AttachmentPart, Entry, Json, Part, ToolCallPart, ToolResultPart } from './types'
import { dayKey, gap } from './time'

export interface ToolStep {
  kind: 'tool'
  key: string
  seq: number
  call: ToolCallPart | null
  result: ToolResultPart | null
  at: string
  doneAt: string | null
  /** The entry that has the result. */
  doneSeq: number | null
}

export interface NoteStep {
  kind: 'reasoning' | 'note' | 'unknown'
  key: string
  seq: number
  text: string
  data: Json
  at: string
  took: number
}

export type Step = ToolStep | NoteStep

/** Whether an entry is part of a step: what asked for it, or what came of it. */
export function isOf(step: Step, seq: number): boolean {
  return step.seq === seq || (step.kind === 'tool' && step.doneSeq === seq)
}

export interface Round {
  key: string
  day: string | null
  at: string
  gapHours: number | null
  model: string | null
  ask: Entry | null
  marks: Entry[]
  steps: Step[]
  answers: Entry[]
  failed: number
  firstSeq: number
  lastSeq: number
  took: number
  tokens: number
  retracted: boolean
  /** What it was made from. */
  entries: readonly Entry[]
}

/** The rounds; those that are as they were before are the same objects, so that nothing draws them again. */
export function rounds(entries: readonly Entry[], before: readonly Round[] = []): Round[] {
  const out: Round[] = []
  const known = new Map(before.map((each) => [each.key, each]))
  const gone = retracted(entries)
  let model: string | null = null
  for (const group of grouped(entries)) {
    const made = round(group, out[out.length - 1], model)
    made.retracted = gone.has(group[0]?.seq ?? -1)
    model = [...group].reverse().find((entry) => entry.model)?.model ?? model
    const old = known.get(made.key)
    out.push(old && isSame(old, made) ? old : made)
  }
  return out
}

function isSame(a: Round, b: Round): boolean {
  if (a.day !== b.day || a.gapHours !== b.gapHours || a.model !== b.model || a.retracted !== b.retracted) return false
  return a.entries.length === b.entries.length && a.entries.every((entry, place) => entry === b.entries[place])
}

/** Which entries were taken back by a later retraction. */
export function retracted(entries: readonly Entry[]): Set<number> {
  const gone = new Set<number>()
  for (const mark of entries) {
    if (mark.kind !== 'retraction') continue
    for (const entry of entries) {
      if (entry.seq > (mark.after ?? 0) && entry.seq < mark.seq) gone.add(entry.seq)
    }
  }
  return gone
}

function grouped(entries: readonly Entry[]): Entry[][] {
  const out: Entry[][] = []
  for (const entry of entries) {
    const last = out[out.length - 1]
    const alone = entry.kind !== 'message' || entry.role === 'system'
    const begins = alone || entry.role === 'user' || !last || isAlone(last)
    if (begins) out.push([entry])
    else last.push(entry)
  }
  return out
}

function isAlone(group: Entry[]): boolean {
  const first = group[0]
  return !first || first.kind !== 'message' || first.role === 'system'
}

function round(group: Entry[], before: Round | undefined, model: string | null): Round {
  const first = group[0] as Entry
  const last = group[group.length - 1] as Entry
  const ask = first.role === 'user' && first.kind === 'message' ? first : null
  const isMark = isAlone(group)
  const rest = isMark || ask ? group.slice(1) : group
  const { steps, answers } = work(rest, first.at)
  const used = [...group].reverse().find((entry) => entry.model)?.model ?? null
  const day = dayKey(first.at)
  return {
    key: ask || isMark ? `r${first.seq}` : `p${last.seq}`,
    day: !before || dayKey(before.at) !== day ? first.at : null,
    at: last.at,
    gapHours: before && dayKey(before.at) === day ? gap(before.at, first.at) : null,
    model: used && model && used !== model ? used : null,
    ask,
    marks: isMark ? [first] : [],
    steps,
    answers,
    failed: steps.filter((step) => step.kind === 'tool' && step.result?.is_error).length,
    firstSeq: first.seq,
    lastSeq: last.seq,
    took: Date.parse(last.at) - Date.parse(first.at),
    tokens: group.reduce((sum, entry) => sum + (entry.token_count ?? 0), 0),
    retracted: false,
    entries: group,
  }
}

/** The words of the last messages stay prose; what came before them is the work. */
function work(entries: Entry[], began: string): { steps: Step[]; answers: Entry[] } {
  const steps: Step[] = []
  const calls = new Map<string, ToolStep>()
  let lastStep = -1
  entries.forEach((entry, place) => {
    if ((entry.parts ?? []).some(isStep)) lastStep = place
  })
  const answers = entries.filter((entry, place) => place >= lastStep && entry.role === 'assistant' && hasProse(entry))
  let before = Date.parse(began)
  for (const entry of entries) {
    const seen: Seen = { entry, isAnswer: answers.includes(entry), took: Date.parse(entry.at) - before }
    ;(entry.parts ?? []).forEach((part, place) => take(seen, part, `${entry.seq}.${place}`, steps, calls))
    before = Date.parse(entry.at)
  }
  return { steps, answers }
}

interface Seen {
  entry: Entry
  isAnswer: boolean
  /** How long after the entry before it. */
  took: number
}

function take(
  { entry, isAnswer, took }: Seen,
  part: Part,
  key: string,
  steps: Step[],
  calls: Map<string, ToolStep>,
): void {
  const at = entry.at
  if (part.type === 'tool_call') {
    const call = part as ToolCallPart
    const step: ToolStep = { kind: 'tool', key, seq: entry.seq, call, result: null, at, doneAt: null, doneSeq: null }
    calls.set(call.id, step)
    steps.push(step)
  } else if (part.type === 'tool_result') {
    const result = part as ToolResultPart
    const step = calls.get(result.call_id)
    if (step) Object.assign(step, { result, doneAt: at, doneSeq: entry.seq })
    else steps.push({ kind: 'tool', key, seq: entry.seq, call: null, result, at, doneAt: at, doneSeq: entry.seq })
  } else if (part.type === 'reasoning') {
    const text = String(part.text ?? '')
    if (text.trim()) steps.push({ kind: 'reasoning', key, seq: entry.seq, text, data: null, at, took })
  } else if (part.type === 'text') {
    const text = String(part.text ?? '')
    if (!isAnswer && text.trim()) steps.push({ kind: 'note', key, seq: entry.seq, text, data: null, at, took })
  } else if (part.type !== 'attachment') {
    steps.push({ kind: 'unknown', key, seq: entry.seq, text: part.type ?? 'unknown', data: part as Json, at, took })
  }
}

function isStep(part: Part): boolean {
  return part.type === 'tool_call' || part.type === 'tool_result'
}

function hasProse(entry: Entry): boolean {
  return (entry.parts ?? []).some(
    (part) => (part.type === 'text' && String(part.text ?? '').trim()) || part.type === 'attachment',
  )
}

export function attachments(entry: Entry): AttachmentPart[] {
  return (entry.parts ?? []).filter((part): part is AttachmentPart => part.type === 'attachment')
}

export function unknownParts(entry: Entry): Part[] {
  return (entry.parts ?? []).filter(
    (part) => !['text', 'reasoning', 'tool_call', 'tool_result', 'attachment'].includes(part.type ?? ''),
  )
}
