/** Types of the HTTP API. */
export interface Source {
  platform: string
  chat_id?: string
  chat_name?: string
  chat_type?: string
  user_id?: string
  user_name?: string
  thread_id?: string
}

export interface SessionSummary {
  id: string
  profile: string
  key: string | null
  source: Source
  kind: string
  title: string | null
  preview: string | null
  model: string | null
  project: string | null
  pinned: boolean
  archived: boolean
  trashed: boolean
  read_only: boolean
  labels: string[]
  began_at: string
  last_active_at: string
  ended_at: string | null
  end_reason: string | null
  last_seq: number
  message_count: number
  tool_call_count: number
  input_tokens: number
  output_tokens: number
  cache_read_tokens: number
  cache_write_tokens: number
  reasoning_tokens: number
  cost_microusd: number | null
  cost_status: string | null
  running: boolean
  unread: number | boolean
  parent_id: string | null
  lineage: string | null
  /** Only in lists. */
  subagents?: number
  failed?: boolean
}

export interface Turn {
  id: string
  session_id: string
  state: string
  agent: string | null
  began_at: string
  ended_at: string | null
  first_seq: number | null
  reason: string | null
  partial?: string | null
}

export interface QueuedMessage {
  id: string
  text: string
  parts?: Part[]
  received_at: string
}

/** The result of a message. A slash command has an answer, and may lead to another session or to none. */
export interface SendResult {
  session_id: string | null
  turn_id: string | null
  seq: number | null
  queued: boolean
  answer?: string
}

/** An earlier message that is being edited. */
export interface MessageEdit {
  seq: number
  text: string
  files: AttachmentPart[]
}

export interface SessionDetail extends SessionSummary {
  position: number
  draft: string | null
  read_through: number
  workspace: unknown
  children: string[]
  branches: [number, number][]
  queued: QueuedMessage[]
  turn: Turn | null
}

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json }

export interface TextPart {
  type: 'text'
  text: string
}
export interface ReasoningPart {
  type: 'reasoning'
  text: string
}
export interface ToolCallPart {
  type: 'tool_call'
  id: string
  name: string
  arguments?: Json
}
export interface ToolResultPart {
  type: 'tool_result'
  call_id: string
  content?: Json
  name?: string | null
  is_error?: boolean
  cut?: { lines: number; characters: number }
}
export interface AttachmentPart {
  type: 'attachment'
  blob: string
  media_type?: string
  name?: string | null
  size?: number | null
}
export interface UnknownPart {
  type?: string
  [name: string]: Json | undefined
}
export type Part = TextPart | ReasoningPart | ToolCallPart | ToolResultPart | AttachmentPart | UnknownPart

export interface Entry {
  id: string
  session_id: string
  seq: number
  kind: 'message' | 'compaction' | 'retraction'
  at: string
  turn_id: string | null
  role?: 'user' | 'assistant' | 'system' | 'tool'
  text?: string
  parts?: Part[]
  person?: { id: string; name?: string } | null
  model?: string | null
  token_count?: number | null
  finish_reason?: string | null
  summary?: string
  through?: number
  after?: number
  reason?: string
}

export interface Page<T> {
  items: T[]
  next: string | null
}

export interface EntryWindow extends Page<Entry> {
  more_before: boolean
  more_after: boolean
}

export interface SearchHit {
  session: SessionSummary
  id: string
  seq: number
  role: string
  snippet: string
  text: string
  at: string
  in_session: number
}

export interface SearchResult extends Page<SearchHit> {
  total: number
  more: boolean
  words: string
  relaxed: boolean
  beginnings: boolean
  step_hits: number
  behind: number
  suggestion: string | null
}

export interface UsageRow {
  group: string | null
  calls: number
  input_tokens: number
  output_tokens: number
  cache_read_tokens: number
  cache_write_tokens: number
  reasoning_tokens: number
  cost_microusd: number | null
  cost_status: string | null
  unknown_cost_calls: number
}

export interface SessionOverview {
  prompts: { seq: number; text: string; at: string }[]
  files: { path: string; changed: boolean; seq: number }[]
  context: { used: number; by_kind: Record<string, number>; compacts_at: number | null; status: string }
  ancestors: SessionSummary[]
  children: SessionSummary[]
}

export interface Binding {
  key: string
  session: SessionSummary
  bound_at: string
  policy?: { mode: string; idle_minutes: number | null; daily_at: string | null; zone: string }
  resets_at?: string | null
  held?: boolean
  last_reset?: { session_id: string; reason: string; at: string } | null
}

export interface Project {
  id: string
  name: string
  colour: string | null
  sessions: number
}
