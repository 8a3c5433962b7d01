/** Formats and options of an export. */
import { apiUrl } from '../api/http'

/** The tools that can continue a conversation. */
export const EXPORT_TOOLS = {
  'claude-code': 'Claude Code',
  codex: 'Codex',
  openai: 'Chat Completions',
  'open-webui': 'Open WebUI',
  hermes: 'Hermes',
} as const

/** A file format, or a tool that continues the conversation. */
export type ExportFormat = 'jsonl' | 'md' | 'html' | keyof typeof EXPORT_TOOLS

export interface ExportOptions {
  form: ExportFormat
  tools?: boolean
  reasoning?: boolean
  redact?: boolean
  masked?: boolean
  /** The most tokens to hand over to a tool. */
  budget?: number | null
}

export function isToolFormat(form: ExportFormat): boolean {
  return form in EXPORT_TOOLS
}

export function exportQuery({
  form,
  tools = true,
  reasoning = true,
  redact = false,
  masked = false,
  budget = null,
}: ExportOptions) {
  const what = isToolFormat(form) ? { as: form, budget } : { format: form }
  return {
    ...what,
    tools: tools ? null : false,
    reasoning: reasoning ? null : false,
    redact: redact || null,
    mask_secrets: masked || null,
  }
}

export function exportPath(ids: string[], options: ExportOptions): string {
  return apiUrl('/export', { session_id: ids, ...exportQuery(options) })
}
