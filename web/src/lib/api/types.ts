/** Types that the workbench builds on those of the HTTP interface (`schema.d.ts`, which is generated). */
import type { AttachmentPart, CompactionEntry, EntryPage, MessageEntry, RetractionEntry } from './schema'

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json }

/** An entry of the transcript. What only some kinds of entries have is undefined for the others. */
export type Entry = EntryPage['items'][number] & Partial<Everything>
type Everything = Omit<MessageEntry, 'kind'> & Omit<CompactionEntry, 'kind'> & Omit<RetractionEntry, 'kind'>

export type Part = MessageEntry['parts'][number]

/** A page of a list. */
export interface Page<T> {
  items: T[]
  next: string | null
}

/** An earlier message that is being edited. */
export interface MessageEdit {
  seq: number
  text: string
  files: AttachmentPart[]
}
