/** Files on their way to the server, before the message that has them. */
import { Problem, token, url } from './api'
import type { AttachmentPart } from './types'

export class Upload {
  progress = $state(0)
  part = $state.raw<AttachmentPart | null>(null)
  error = $state<string | null>(null)
  private request = new XMLHttpRequest()

  constructor(readonly file: File) {}

  async start(): Promise<void> {
    try {
      this.part = await this.send(await token())
    } catch (error) {
      this.error = error instanceof Error ? error.message : String(error)
    }
  }

  cancel(): void {
    this.request.abort()
  }

  // fetch does not tell how far an upload is.
  private send(csrf: string): Promise<AttachmentPart> {
    const request = this.request
    return new Promise((resolve, reject) => {
      request.open('POST', url('/blobs', { name: this.file.name }))
      request.setRequestHeader('X-CSRF-Token', csrf)
      request.setRequestHeader('Idempotency-Key', crypto.randomUUID())
      request.setRequestHeader('Content-Type', this.file.type || 'application/octet-stream')
      request.upload.onprogress = (event) => (this.progress = event.lengthComputable ? event.loaded / event.total : 0)
      request.onload = () => {
        const said = JSON.parse(request.responseText || '{}') as AttachmentPart & { detail?: string }
        if (request.status < 300) resolve(said)
        else reject(new Problem(request.status, '', said.detail ?? request.statusText))
      }
      request.onerror = () => reject(new Problem(0, 'offline', 'The server does not answer.'))
      request.send(this.file)
    })
  }
}
