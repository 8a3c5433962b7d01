/** Groups entries into exchanges: a prompt, the steps of the agent, and its answer. */
import type { AttachmentPart, ToolCallPart, ToolResultPart } from '../api/schema'
import type { Entry, Json, Part } from '../api/types'
import { dayKey, hoursBetween } from '../format'

export interface ToolStep {
  kind: 'tool'
  key: string
  seq: number
  call: ToolCallPart | null
  result: ToolResultPart | null
  at: string
  doneAt: string | null
  /** The seq of the entry that has the result. */
  doneSeq: number | null
}

export interface NoteStep {
  kind: 'reasoning' | 'note' | 'unknown'
  key: string
  seq: number
  text: string
  data: Json
  at: string
  durationMs: number
}

export type Step = ToolStep | NoteStep

/** Whether the entry holds this step's call or its result. */
export function isStepAt(step: Step, seq: number): boolean {
  return step.seq === seq || (step.kind === 'tool' && step.doneSeq === seq)
}

export interface Exchange {
  key: string
  day: string | null
  at: string
  gapHours: number | null
  model: string | null
  prompt: Entry | null
  markers: Entry[]
  /** What the turn has asked people, and what became of it. */
  records: Entry[]
  steps: Step[]
  answers: Entry[]
  failed: number
  firstSeq: number
  lastSeq: number
  durationMs: number
  tokens: number
  retracted: boolean
  /** The entries of this exchange. */
  entries: readonly Entry[]
}

/** Build the exchanges. Unchanged ones are the same objects as before, so that they are not rendered again. */
export function buildExchanges(entries: readonly Entry[], before: readonly Exchange[] = []): Exchange[] {
  const result: Exchange[] = []
  const byKey = new Map(before.map((each) => [each.key, each]))
  const retractedSeqs = retracted(entries)
  let model: string | null = null
  for (const group of groupEntries(entries)) {
    const exchange = buildExchange(group, result[result.length - 1], model)
    exchange.retracted = retractedSeqs.has(group[0]?.seq ?? -1)
    model = [...group].reverse().find((entry) => entry.model)?.model ?? model
    const old = byKey.get(exchange.key)
    result.push(old && isSame(old, exchange) ? old : exchange)
  }
  return result
}

function isSame(a: Exchange, b: Exchange): boolean {
  if (a.day !== b.day || a.gapHours !== b.gapHours || a.model !== b.model || a.retracted !== b.retracted) return false
  return a.entries.length === b.entries.length && a.entries.every((entry, index) => entry === b.entries[index])
}

/** The seqs of all entries that a later retraction covers. */
export function retracted(entries: readonly Entry[]): Set<number> {
  const retractedSeqs = new Set<number>()
  for (const mark of entries) {
    if (mark.kind !== 'retraction') continue
    for (const entry of entries) {
      if (entry.seq > (mark.after ?? 0) && entry.seq < mark.seq) retractedSeqs.add(entry.seq)
    }
  }
  return retractedSeqs
}

function groupEntries(entries: readonly Entry[]): Entry[][] {
  const result: Entry[][] = []
  for (const entry of entries) {
    const last = result[result.length - 1]
    const isMarkerEntry = entry.kind !== 'message' || (entry.role === 'system' && !isQuestion(entry))
    const startsGroup = isMarkerEntry || entry.role === 'user' || !last || isMarker(last)
    if (startsGroup) result.push([entry])
    else last.push(entry)
  }
  return result
}

/** Whether people were asked something, or have answered, within a turn. */
function isQuestion(entry: Entry): boolean {
  return recordOf(entry)?.kind === 'question'
}

function isMarker(group: Entry[]): boolean {
  const first = group[0]
  return !first || first.kind !== 'message' || first.role === 'system'
}

function buildExchange(group: Entry[], before: Exchange | undefined, model: string | null): Exchange {
  const first = group[0] as Entry
  const last = group[group.length - 1] as Entry
  const prompt = first.role === 'user' && first.kind === 'message' ? first : null
  const isMark = isMarker(group)
  const own = isMark || prompt ? group.slice(1) : group
  const rest = own.filter((entry) => !isQuestion(entry))
  const { steps, answers } = splitWork(rest, first.at)
  const used = [...group].reverse().find((entry) => entry.model)?.model ?? null
  const day = dayKey(first.at)
  return {
    key: prompt || isMark ? `r${first.seq}` : `p${last.seq}`,
    day: !before || dayKey(before.at) !== day ? first.at : null,
    at: last.at,
    gapHours: before && dayKey(before.at) === day ? hoursBetween(before.at, first.at) : null,
    model: used && model && used !== model ? used : null,
    prompt,
    markers: isMark ? [first] : [],
    records: own.filter(isQuestion),
    steps,
    answers,
    failed: steps.filter((step) => step.kind === 'tool' && step.result?.is_error).length,
    firstSeq: first.seq,
    lastSeq: last.seq,
    durationMs: Date.parse(last.at) - Date.parse(first.at),
    tokens: group.reduce((sum, entry) => sum + (entry.token_count ?? 0), 0),
    retracted: false,
    entries: group,
  }
}

/** Split entries into answers (the text after the last tool call) and steps (everything before). */
function splitWork(entries: Entry[], began: string): { steps: Step[]; answers: Entry[] } {
  const steps: Step[] = []
  const calls = new Map<string, ToolStep>()
  let lastStep = -1
  entries.forEach((entry, index) => {
    if ((entry.parts ?? []).some(isStep)) lastStep = index
  })
  const answers = entries.filter((entry, index) => index >= lastStep && entry.role === 'assistant' && hasProse(entry))
  let before = Date.parse(began)
  for (const entry of entries) {
    const context: EntryContext = {
      entry,
      isAnswer: answers.includes(entry),
      durationMs: Date.parse(entry.at) - before,
    }
    ;(entry.parts ?? []).forEach((part, index) => addPart(context, part, `${entry.seq}.${index}`, steps, calls))
    before = Date.parse(entry.at)
  }
  return { steps, answers }
}

interface EntryContext {
  entry: Entry
  isAnswer: boolean
  /** The time since the entry before. */
  durationMs: number
}

function addPart(
  { entry, isAnswer, durationMs }: EntryContext,
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
    if (text.trim()) steps.push({ kind: 'reasoning', key, seq: entry.seq, text, data: null, at, durationMs })
  } else if (part.type === 'text') {
    const text = String(part.text ?? '')
    if (!isAnswer && text.trim()) steps.push({ kind: 'note', key, seq: entry.seq, text, data: null, at, durationMs })
  } else if (part.type !== 'attachment') {
    steps.push({
      kind: 'unknown',
      key,
      seq: entry.seq,
      text: String(part.type ?? 'unknown'),
      data: part as Json,
      at,
      durationMs,
    })
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
    (part) => !['text', 'reasoning', 'tool_call', 'tool_result', 'attachment'].includes(String(part.type ?? '')),
  )
}

export interface SessionRecord {
  kind: string
  reason?: string
  seq?: number
  /** What was chosen for the session, and what was before; null is the default. */
  changed?: Record<string, unknown>
  before?: Record<string, unknown>
  by?: string | null
  /** Whether nobody chose this: what was chosen before is no longer there. */
  is_missing?: boolean
  /** The agent that answers then. */
  agent?: string | null
  /** A question to people: which one, of which kind, and what became of it. */
  question_id?: string
  question?: string
  state?: string
  text?: string
  tool?: string
  decision?: string
  answer?: string
  /** The budget that refused a message; absent if something else did, and in older records. */
  budget?: { scope: string; per: string; resets_at: string }
}

/** The record in an entry; null for a message. */
export function recordOf(entry: Entry): SessionRecord | null {
  const record = entry.role === 'system' ? (entry.extra?.['record'] as SessionRecord | undefined) : undefined
  return record && typeof record.kind === 'string' ? record : null
}
